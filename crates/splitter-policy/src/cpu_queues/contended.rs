//! Several CPUs at once, for tests: each access to a shared number may be preceded by whole packets of
//! others, and each of theirs by those of still others.

use super::SharedWord;
use core::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread_local;

/// A number before each access to which others may come.
#[derive(Debug, Default)]
pub(crate) struct Contended {
    pub(crate) number: Cell<u64>,
    pub(crate) writes: Cell<u64>,
}

/// A host whose CPUs come in between.
pub(crate) trait Interrupts {
    /// Sends what other CPUs send now.
    fn be_interrupted(&self);
}

thread_local! {
    static HOST: RefCell<Option<Rc<dyn Interrupts>>> = const { RefCell::new(None) };
}

/// Has `host` interrupt all accesses of this thread from now on.
pub(crate) fn interrupt_by(host: Rc<dyn Interrupts>) {
    HOST.with(|it| *it.borrow_mut() = Some(host));
}

impl Contended {
    fn access<T>(&self, act: impl FnOnce(&Cell<u64>) -> T) -> T {
        let host = HOST.with(|it| it.borrow().clone());
        if let Some(host) = host {
            host.be_interrupted();
        }
        act(&self.number)
    }

    fn write<T>(&self, act: impl FnOnce(&Cell<u64>) -> T) -> T {
        self.writes.set(self.writes.get() + 1);
        self.access(act)
    }
}

impl SharedWord for Contended {
    fn get(&self) -> u64 {
        self.access(Cell::get)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        self.write(|number| number.exchange(old, new))
    }

    fn add(&self, amount: u64) -> u64 {
        self.write(|number| number.add(amount))
    }
}
