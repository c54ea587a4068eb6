//! How much of a destination rules and routes look at, and which notes of next hops are therefore right.
//!
//! Reading rules and routes takes as long as there are many of them, and as somebody holds the kernel's lock
//! on routing. It has a thread of its own, so that voiding does not wait for it.

use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use splitter_datapath::{KernelError, NextHops, read_prefix_lengths};
use splitter_netlink::forwarding_heeds_path_mtu;
use splitter_policy::next_hop::{Generation, NextHop};
use splitter_policy::prefix_lengths::PrefixLengths;

/// How often next hops are vouched for where nothing happens. Before that nobody believes a note that
/// serves many.
const BEAT: Duration = Duration::from_millis(50);

/// The same for as long as such notes are new, and a little longer.
const FIRST_BEATS: Duration = Duration::from_millis(20);
const ALL_NEW: Duration = Duration::from_nanos(2 * NextHop::ANNOUNCED_NS);

/// After each change each flow is a question of its own for so long: its notes are believed at once, while
/// packets come to where they went before.
const SETTLED: Duration = Duration::from_millis(500);

/// Rules and routes are read no oftener than leaves a hundredth of a processor's time to it, and once in
/// this time at least where they change.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const PAUSE_FOR_READING: u32 = 100;

/// The maps in which programs find what to believe.
pub(super) trait Notes {
    /// Why one cannot be read or written.
    type Error;

    /// See [`NextHops::generation`].
    fn generation(&self) -> Result<Generation, Self::Error>;

    /// See [`NextHops::begin`].
    fn begin(&mut self) -> Result<Generation, Self::Error>;

    /// See [`NextHops::write_lengths`].
    fn write_lengths(&mut self, lengths: &PrefixLengths) -> Result<(), Self::Error>;

    /// See [`NextHops::devices`].
    fn devices(&self) -> Result<Vec<u32>, Self::Error>;
}

impl Notes for NextHops {
    type Error = KernelError;

    fn generation(&self) -> Result<Generation, KernelError> {
        self.generation()
    }

    fn begin(&mut self) -> Result<Generation, KernelError> {
        self.begin()
    }

    fn write_lengths(&mut self, lengths: &PrefixLengths) -> Result<(), KernelError> {
        self.write_lengths(lengths)
    }

    fn devices(&self) -> Result<Vec<u32>, KernelError> {
        self.devices()
    }
}

/// How much of a destination rules and routes look at, as far as it is known.
pub(super) struct Routing {
    lengths: Option<Box<PrefixLengths>>,
    /// The programs know of none.
    is_cleared: bool,
    /// What was begun last, and when. `None` before that, and where a write has failed since: what the
    /// programs believe then may be anything.
    generation: Option<Generation>,
    begun: Instant,
    /// What they were read for.
    circumstances: Circumstances,
    reader: Reader,
}

/// What else than rules and routes decides how much they look at, without a notification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Circumstances {
    devices: Vec<u32>,
    heeds_path_mtu: bool,
}

impl Circumstances {
    fn of<N: Notes>(notes: &N) -> Result<Self, N::Error> {
        Ok(Self {
            devices: notes.devices()?,
            heeds_path_mtu: forwarding_heeds_path_mtu(),
        })
    }
}

impl Routing {
    pub(super) fn unknown() -> Self {
        Self::read_by(read_prefix_lengths)
    }

    fn read_by(read: Read) -> Self {
        Self {
            lengths: None,
            is_cleared: false,
            generation: None,
            begun: Instant::now(),
            circumstances: Circumstances::default(),
            reader: Reader {
                read,
                reading: None,
                not_before: Instant::now(),
            },
        }
    }

    /// Rules or routes have changed: neither what was read of them nor what is being read is right.
    pub(super) fn forget(&mut self) {
        self.lengths = None;
        self.reader.forget();
    }

    /// Voids what was noted; each flow is a question of its own until all is settled.
    pub(super) fn void<N: Notes>(&mut self, notes: &mut N) -> Result<(), N::Error> {
        // Until both writes are done.
        self.generation = None;
        let generation = notes.begin()?;
        if !self.is_cleared {
            notes.write_lengths(&PrefixLengths::EVERYTHING)?;
            self.is_cleared = true;
        }
        self.generation = Some(generation);
        self.begun = Instant::now();
        Ok(())
    }

    /// How long to wait until next hops are vouched for again.
    pub(super) fn beat(&self) -> Duration {
        if !self.is_cleared && self.begun.elapsed() < ALL_NEW {
            FIRST_BEATS
        } else {
            BEAT
        }
    }

    /// Sees to it that the programs know how much of a packet rules and routes look at, which are read where
    /// they have changed.
    pub(super) fn settle<N: Notes>(&mut self, notes: &mut N, is_due: bool) -> Result<(), N::Error> {
        // Else a write has failed, or somebody has put other devices in, or other programs.
        let is_ours = Some(notes.generation()?) == self.generation;
        if is_ours && !self.is_cleared && !is_due {
            return Ok(());
        }
        let circumstances = Circumstances::of(notes)?;
        if circumstances != self.circumstances {
            self.forget();
            self.circumstances = circumstances;
        }
        if !is_ours || (self.lengths.is_none() && !self.is_cleared) {
            self.is_cleared = false;
            self.void(notes)?;
        }
        if !self.is_cleared || self.begun.elapsed() < SETTLED {
            return Ok(());
        }
        if self.lengths.is_none() {
            self.lengths = self.reader.look(&self.circumstances.devices);
        }
        let Some(lengths) = &self.lengths else {
            return Ok(());
        };
        // Until both writes are done.
        self.generation = None;
        notes.write_lengths(lengths)?;
        self.is_cleared = false;
        self.generation = Some(notes.begin()?);
        self.begun = Instant::now();
        // A device may have come since they were read.
        if Circumstances::of(notes)? != self.circumstances {
            self.forget();
            self.void(notes)?;
        }
        Ok(())
    }
}

type Read = fn(&[u32]) -> io::Result<Box<PrefixLengths>>;

/// Reads rules and routes, one time after the other.
struct Reader {
    read: Read,
    reading: Option<Reading>,
    /// When they may be read again.
    not_before: Instant,
}

struct Reading {
    thread: JoinHandle<(io::Result<Box<PrefixLengths>>, Duration)>,
    /// Nothing has changed since it began, as far as is known.
    is_wanted: bool,
}

impl Reader {
    fn forget(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.is_wanted = false;
        }
    }

    /// What was read since nothing has changed. Has it read where that may be, and waits for nothing.
    fn look(&mut self, devices: &[u32]) -> Option<Box<PrefixLengths>> {
        if self.reading.is_none() && Instant::now() >= self.not_before {
            self.begin(devices);
        }
        let reading = self.reading.take_if(|it| it.thread.is_finished())?;
        let (read, took) = reading.thread.join().unwrap_or_else(|_| {
            let panicked = io::Error::other("reading rules and routes panicked");
            (Err(panicked), Duration::ZERO)
        });
        self.not_before = Instant::now() + (took * PAUSE_FOR_READING).min(LONGEST_PAUSE);
        match read {
            Ok(lengths) => reading.is_wanted.then_some(lengths),
            Err(error) => {
                Self::report(&error);
                None
            }
        }
    }

    fn begin(&mut self, devices: &[u32]) {
        let (read, devices) = (self.read, devices.to_vec());
        // A thread lives in the network namespace of the one that makes it.
        let thread = Builder::new().name("routes".to_owned()).spawn(move || {
            let begin = Instant::now();
            (read(&devices), begin.elapsed())
        });
        match thread {
            Ok(thread) => {
                self.reading = Some(Reading {
                    thread,
                    is_wanted: true,
                });
            }
            Err(error) => {
                self.not_before = Instant::now() + LONGEST_PAUSE;
                Self::report(&error);
            }
        }
    }

    fn report(error: &io::Error) {
        tracing::debug!(%error, "each flow is redirected by a note of its own, as rules and routes could not be read");
    }
}

#[cfg(test)]
mod tests;
