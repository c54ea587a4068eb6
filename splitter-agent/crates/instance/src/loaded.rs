//! What kernel programs an earlier agent has left.

use splitter_datapath::{Dataplane, Object};

use crate::{Instance, InstanceError, State, pin_owner};

/// The programs that are pinned.
pub(crate) enum Loaded {
    /// None.
    Nothing,
    /// Those that this agent would load.
    Current(Box<Dataplane>),
    /// Those of another version, or for another log level. Their maps may be laid out in any way.
    OtherBuild {
        /// The kernel's ids of the programs that interfaces may have.
        program_ids: Vec<u32>,
        /// Digest of the object that they are from, if it is known.
        object: String,
    },
}

impl Loaded {
    fn of_ours(dataplane: Option<Dataplane>) -> Self {
        dataplane.map_or(Self::Nothing, |it| Self::Current(Box::new(it)))
    }
}

impl Instance {
    /// Looks what is pinned; `state` says what it is from.
    pub(crate) fn loaded(&self, state: Option<&State>) -> Result<Loaded, InstanceError> {
        self.pins().check_readable()?;
        pin_owner::check(self.pins(), &self.config().instance_dir())?;
        if !self.pins().exist() {
            return Ok(Loaded::Nothing);
        }
        let other_build = |object| {
            let program_ids = Dataplane::program_ids(self.pins())?;
            Ok(Loaded::OtherBuild {
                program_ids,
                object,
            })
        };
        match state {
            Some(state) if state.object != self.object.digest() => {
                other_build(state.object.clone())
            }
            Some(_) => Ok(Loaded::of_ours(self.open()?)),
            // Whose file was lost: what can be read is taken for ours, as far as it goes.
            None => match self.open() {
                Ok(dataplane) => Ok(Loaded::of_ours(dataplane)),
                Err(_) => other_build(String::new()),
            },
        }
    }
}

impl State {
    /// The same, of other programs.
    pub(crate) fn with_object(self, object: &Object) -> Self {
        Self {
            object: object.digest(),
            ..self
        }
    }

    /// The same, of programs of which nobody knows: the next agent replaces them.
    pub(crate) fn with_unknown_object(self) -> Self {
        Self {
            object: String::new(),
            ..self
        }
    }

    /// As long as other programs are in place, that is what it says: an agent that is killed before
    /// it has replaced them is followed by one that does.
    pub(crate) fn with_object_of(self, loaded: &Loaded) -> Self {
        match loaded {
            Loaded::OtherBuild { object, .. } => Self {
                object: object.clone(),
                ..self
            },
            Loaded::Nothing | Loaded::Current(_) => self,
        }
    }
}
