//! An object whose programs can be run, without a kernel.

use std::collections::{BTreeMap, HashSet};

use aya_obj::generated::bpf_insn;
use aya_obj::{Object, ProgramSection};

use crate::context::{Context, Hook, Metadata};
use crate::counts::Counts;
use crate::fault::{Fault, FaultAt};
use crate::helpers::{Kernel, MAPS};
use crate::interpreter::{self, STACK_BYTES};
use crate::maps::Map;
use crate::memory::{Memory, Region};

/// The programs of an object, linked with what they call, and its maps.
#[derive(Debug)]
pub struct Machine {
    programs: BTreeMap<String, Program>,
    /// Both clocks, and what the kernel knows.
    pub kernel: Kernel,
    pub(crate) maps: Vec<Map>,
    pub(crate) memory: Memory,
    pub(crate) stack: Region,
    pub(crate) frame: Region,
}

#[derive(Debug)]
struct Program {
    hook: Hook,
    instructions: Vec<bpf_insn>,
}

/// The result of a run: what became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// What the program returned.
    pub verdict: u32,
    /// The packet's bytes then.
    pub frame: Vec<u8>,
    /// The kernel's mark of it then.
    pub mark: u32,
    /// What was executed.
    pub counts: Counts,
}

/// The reason why an object cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is no object of kernel programs.
    #[error("cannot read the object: {0}")]
    Parse(#[from] aya_obj::ParseError),
    /// References in it lead nowhere.
    #[error("cannot link the object: {0}")]
    Relocate(#[from] aya_obj::relocation::EbpfRelocationError),
    /// It has what is not emulated.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Machine {
    /// Links the programs of `object` as a loader does. Maps named in `sizes` have so many entries.
    ///
    /// # Errors
    /// When it is no object, or has maps that are not emulated.
    pub fn load(object: &[u8], sizes: &[(&str, u32)]) -> Result<Self, LoadError> {
        let mut object = Object::parse(object)?;
        let mut memory = Memory::default();
        let (stack, frame) = (memory.allocate(STACK_BYTES), memory.allocate(0));
        let parsed: BTreeMap<_, _> = object.maps.clone().into_iter().collect();
        let mut maps = Vec::new();
        for (name, map) in &parsed {
            let size = sizes.iter().find(|(of, _)| of == name);
            let entries = size.map_or(map.max_entries(), |(_, entries)| *entries);
            let mut made = Map::new(name, map, entries, &mut memory)?;
            if !map.data().is_empty() {
                made.update(&0_u32.to_le_bytes(), map.data(), &mut memory)?;
            }
            maps.push(made);
        }
        // Those that may be put into others have numbers behind all that programs name.
        for (name, map) in &parsed {
            if let Some(inner) = map.inner() {
                let name = inner_name(name);
                maps.push(Map::new(&name, &inner, inner.max_entries(), &mut memory)?);
            }
        }
        // A map's number stands where a loader has its descriptor.
        let numbered = parsed.iter().zip(0..);
        let numbered = numbered.map(|((name, map), number)| (name.as_str(), number, map));
        let text: HashSet<usize> = object
            .functions
            .keys()
            .map(|(section, _)| *section)
            .collect();
        object.relocate_maps(numbered, &text)?;
        object.relocate_calls(&text)?;
        let linked = |program: &aya_obj::Program| {
            let function = object.functions.get(&program.function_key())?;
            Some(Program {
                hook: match program.section {
                    ProgramSection::Xdp { .. } => Hook::Xdp,
                    ProgramSection::SchedClassifier => Hook::TrafficControl,
                    _ => return None,
                },
                instructions: function.instructions.clone(),
            })
        };
        let programs = object.programs.iter();
        let programs = programs.filter_map(|(name, it)| Some((name.clone(), linked(it)?)));
        Ok(Self {
            programs: programs.collect(),
            kernel: Kernel::default(),
            maps,
            memory,
            stack,
            frame,
        })
    }

    /// One without programs or maps.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        let mut memory = Memory::default();
        let (stack, frame) = (memory.allocate(STACK_BYTES), memory.allocate(0));
        Self {
            programs: BTreeMap::new(),
            kernel: Kernel::default(),
            maps: Vec::new(),
            memory,
            stack,
            frame,
        }
    }

    /// Runs a program on a packet.
    ///
    /// # Errors
    /// When there is no such program, or it does what is wrong or not emulated.
    pub fn run(&mut self, program: &str, frame: &[u8], metadata: Metadata) -> Result<Ran, FaultAt> {
        let Some((name, found)) = self.programs.remove_entry(program) else {
            return Err(FaultAt {
                program: program.to_owned(),
                instruction: 0,
                fault: Fault::Stopped("the object has no such program"),
            });
        };
        self.memory.replace(self.frame, frame);
        let start = self.frame.start();
        let mut context = Context {
            hook: found.hook,
            metadata,
            protocol: frame
                .get(12..14)
                .and_then(|it| it.try_into().ok())
                .map_or(0, u16::from_ne_bytes),
            start,
            end: start + frame.len() as u64,
        };
        let ended = interpreter::run(self, &found.instructions, &mut context);
        self.programs.insert(name, found);
        let (verdict, counts) = ended.map_err(|(instruction, fault)| FaultAt {
            program: program.to_owned(),
            instruction,
            fault,
        })?;
        Ok(Ran {
            // The kernel looks at the lower half alone.
            verdict: verdict as u32,
            frame: self.memory.region(self.frame).to_vec(),
            mark: context.metadata.mark,
            counts,
        })
    }

    /// Writes a value into a map.
    ///
    /// # Errors
    /// When there is no such map, or no room in it.
    pub fn set(&mut self, map: &str, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let maps = &mut self.maps;
        let Some(found) = maps.iter_mut().find(|it| it.name == map) else {
            return Err(Fault::NoMap(map.to_owned()));
        };
        if (key.len(), value.len()) != (found.key_bytes, found.value_bytes) {
            return Err(Fault::Stopped("key or value is not as long as the map's"));
        }
        if found.update(key, value, &mut self.memory)? {
            Ok(())
        } else {
            Err(Fault::Stopped("the map has no room for the value"))
        }
    }

    /// Puts the map that a map of maps was declared with into it, by the name of `inner_name`.
    ///
    /// # Errors
    /// When there is no such map of maps.
    pub fn give(&mut self, map: &str) -> Result<(), Fault> {
        let number = |name: &str| self.maps.iter().position(|it| it.name == name);
        let (outer, inner) = (number(map), number(&inner_name(map)));
        let (Some(outer), Some(inner)) = (outer, inner) else {
            return Err(Fault::NoMap(map.to_owned()));
        };
        match self.maps[outer].give(MAPS + inner as u64) {
            true => Ok(()),
            false => Err(Fault::Stopped("a map was put into one that holds no maps")),
        }
    }

    /// All values of a map.
    ///
    /// # Errors
    /// When there is no such map.
    pub fn values(&self, map: &str) -> Result<Vec<&[u8]>, Fault> {
        let found = self.maps.iter().find(|it| it.name == map);
        let found = found.ok_or_else(|| Fault::NoMap(map.to_owned()))?;
        Ok(found.values(&self.memory))
    }
}

/// What a map is called that may be put into another.
pub(crate) fn inner_name(outer: &str) -> String {
    format!("{outer}.inner")
}
