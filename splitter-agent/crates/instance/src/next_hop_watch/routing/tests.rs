use std::sync::{Mutex, MutexGuard, PoisonError};

use splitter_policy::prefix_lengths::{PrefixLengthsBuilder, Reach};

use super::*;

/// Maps of which a write may fail.
struct Fake {
    in_force: Generation,
    lengths: Box<PrefixLengths>,
    /// The number of the last generation, and of the writes until one fails.
    drawn: u64,
    until_failure: Option<u32>,
}

impl Fake {
    fn new() -> Self {
        Self {
            in_force: Generation::default(),
            lengths: Box::new(PrefixLengths::EVERYTHING),
            drawn: 0,
            until_failure: None,
        }
    }

    fn write(&mut self) -> Result<(), &'static str> {
        let fails = self.until_failure == Some(0);
        self.until_failure = self.until_failure.and_then(|it| it.checked_sub(1));
        if fails { Err("refused") } else { Ok(()) }
    }

    fn serves_many(&self) -> bool {
        *self.lengths != PrefixLengths::EVERYTHING
    }
}

impl Notes for Fake {
    type Error = &'static str;

    fn generation(&self) -> Result<Generation, Self::Error> {
        Ok(self.in_force)
    }

    fn begin(&mut self) -> Result<Generation, Self::Error> {
        self.write()?;
        self.drawn += 1;
        self.in_force = Generation::new(self.drawn);
        Ok(self.in_force)
    }

    fn write_lengths(&mut self, lengths: &PrefixLengths) -> Result<(), Self::Error> {
        self.write()?;
        *self.lengths = *lengths;
        Ok(())
    }

    fn devices(&self) -> Result<Vec<u32>, Self::Error> {
        Ok(Vec::from([7]))
    }
}

/// By a default route alone.
fn read_default(_: &[u32]) -> io::Result<Box<PrefixLengths>> {
    let mut builder = PrefixLengthsBuilder::new();
    builder.add([0, 0, 0, 0].into(), 0, Reach::Prefix);
    Ok(Box::new(builder.build()))
}

/// Held by whoever has [`read_slowly`] wait.
static HELD: Mutex<()> = Mutex::new(());

fn hold() -> MutexGuard<'static, ()> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_slowly(devices: &[u32]) -> io::Result<Box<PrefixLengths>> {
    drop(hold());
    read_default(devices)
}

/// As after the time for which each flow is a question of its own.
fn pass(routing: &mut Routing) {
    routing.begun = Instant::now()
        .checked_sub(SETTLED)
        .expect("the machine is up for longer");
    routing.reader.not_before = Instant::now();
}

/// Looks until all is settled, or nothing is being read any more.
fn settle(routing: &mut Routing, notes: &mut Fake) {
    loop {
        routing.settle(notes, true).expect("nothing fails");
        if routing.reader.reading.is_none() {
            return;
        }
        std::thread::yield_now();
    }
}

fn settled(read: Read) -> (Routing, Fake) {
    let (mut routing, mut notes) = (Routing::read_by(read), Fake::new());
    routing.settle(&mut notes, true).expect("nothing fails");
    assert!(!notes.serves_many() && notes.drawn == 1);
    pass(&mut routing);
    settle(&mut routing, &mut notes);
    assert!(notes.serves_many());
    (routing, notes)
}

#[test]
fn what_was_noted_is_void_after_a_change_though_a_write_failed_first() {
    // Of a generation, and of how much routing looks at.
    for failing in 0..2 {
        let (mut routing, mut notes) = settled(read_default);
        let before = notes.in_force;
        routing.forget();
        notes.until_failure = Some(failing);
        assert_eq!(routing.void(&mut notes), Err("refused"), "write {failing}");
        // By the next look, whether it is due or not.
        routing.settle(&mut notes, false).expect("nothing fails");
        assert_ne!(notes.in_force, before, "write {failing}");
        assert!(!notes.serves_many(), "write {failing}");
        assert_eq!(routing.generation, Some(notes.in_force));
    }
}

#[test]
fn lengths_whose_generation_did_not_begin_are_not_left_in_force() {
    for failing in 0..2 {
        let (mut routing, mut notes) = (Routing::read_by(read_default), Fake::new());
        routing.settle(&mut notes, true).expect("nothing fails");
        pass(&mut routing);
        routing.lengths = read_default(&[]).ok();
        let before = notes.in_force;
        notes.until_failure = Some(failing);
        assert_eq!(routing.settle(&mut notes, true), Err("refused"));
        routing.settle(&mut notes, false).expect("nothing fails");
        assert_ne!(notes.in_force, before, "write {failing}");
        assert!(!notes.serves_many(), "write {failing}");
        pass(&mut routing);
        settle(&mut routing, &mut notes);
        assert!(notes.serves_many(), "write {failing}");
    }
}

#[test]
fn change_is_voided_while_routes_are_read_and_what_was_read_before_it_is_not_believed() {
    let (mut routing, mut notes) = (Routing::read_by(read_slowly), Fake::new());
    routing.settle(&mut notes, true).expect("nothing fails");
    pass(&mut routing);
    let held = hold();
    routing.settle(&mut notes, true).expect("nothing fails");
    assert!(routing.reader.reading.is_some());
    let before = notes.in_force;
    routing.forget();
    routing.void(&mut notes).expect("nothing fails");
    assert_ne!(notes.in_force, before, "voiding does not wait");
    pass(&mut routing);
    routing.settle(&mut notes, true).expect("nothing fails");
    drop(held);
    settle(&mut routing, &mut notes);
    assert!(!notes.serves_many(), "that was read before the change");
    pass(&mut routing);
    settle(&mut routing, &mut notes);
    assert!(notes.serves_many());
}
