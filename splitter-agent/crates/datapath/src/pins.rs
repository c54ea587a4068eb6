//! Where an instance's kernel objects are pinned.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::geteuid;
use splitter_config::SteeringMode;

use super::names::COUNT_EGRESS;
use super::program::program_name;
use super::raw::{self, Pinned};
use super::{KernelError, TcSide, chain};

/// Knows the paths below `<bpffs>/splitter/<instance>`.
#[derive(Clone, Debug)]
pub struct Pins {
    bpffs: PathBuf,
    root: PathBuf,
}

impl Pins {
    /// The pins of the instance whose directory is `root`, on the BPF file
    /// system mounted at `bpffs`. Touches nothing.
    pub fn new(bpffs: &Path, root: &Path) -> Self {
        Self {
            bpffs: bpffs.to_owned(),
            root: root.to_owned(),
        }
    }

    /// The BPF file system that they are on.
    pub(super) fn bpffs(&self) -> &Path {
        &self.bpffs
    }

    /// The directory that holds all of them.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The program of a way of steering; one of them is there at a time.
    pub fn program_of(&self, steering: SteeringMode) -> PathBuf {
        self.root.join(program_name(steering))
    }

    /// Which program is pinned.
    pub fn pinned(&self) -> Option<SteeringMode> {
        let mut modes = SteeringMode::ALL.iter().copied();
        modes.find(|mode| self.program_of(*mode).exists())
    }

    /// Where a pin lies that is about to take its place.
    pub(super) fn marker(&self) -> PathBuf {
        self.root.join("marker")
    }

    /// The note that the `clsact` queueing discipline of an interface was not there before.
    pub(super) fn made_clsact(&self, interface: &str) -> PathBuf {
        self.made_by_us().join(link_name(interface))
    }

    fn made_by_us(&self) -> PathBuf {
        self.root.join("clsact")
    }

    /// A map by the name that it has in the object.
    pub fn map(&self, name: &str) -> PathBuf {
        self.root.join("maps").join(name)
    }

    /// The note on how flows lie in their maps, which goes where those go.
    pub(super) fn table_note(&self) -> PathBuf {
        self.map("tables")
    }

    /// The link that attaches the program to an interface of the site.
    pub fn link(&self, interface: &str) -> PathBuf {
        self.link_at(TcSide::Ingress, interface)
    }

    /// The link that attaches a program to a side of an interface: what comes from the site, or what
    /// leaves by a tunnel.
    pub(super) fn link_at(&self, side: TcSide, interface: &str) -> PathBuf {
        self.links(side).join(link_name(interface))
    }

    /// The program that counts what leaves by the tunnels.
    pub(super) fn count_egress(&self) -> PathBuf {
        self.root.join(COUNT_EGRESS)
    }

    /// The interfaces of the site that have a pinned link.
    pub fn linked_interfaces(&self) -> io::Result<Vec<String>> {
        interfaces_in(&self.links(TcSide::Ingress))
    }

    /// The tunnels' devices whose egress is counted.
    ///
    /// # Errors
    /// When the directory of the links cannot be read; that it is not there is none.
    pub fn counted_devices(&self) -> io::Result<Vec<String>> {
        interfaces_in(&self.links(TcSide::Egress))
    }

    /// Returns true where the instance has a program pinned.
    pub fn exist(&self) -> bool {
        self.pinned().is_some()
    }

    /// Returns true where something pinned may be attached to a device of the site: a link whose device has not
    /// gone, or a program, which a filter may have.
    pub fn are_in_use(&self) -> bool {
        let links = self.linked_interfaces().unwrap_or_default();
        links
            .iter()
            .any(|interface| match raw::pinned(&self.link(interface)) {
                Ok(Some(Pinned::TcxLink(link) | Pinned::XdpLink(link))) => link.interface != 0,
                Ok(Some(Pinned::Program(_) | Pinned::Other)) | Err(_) => true,
                Ok(None) => false,
            })
    }

    /// Checks that the caller may look for pins. Without the right to, none would
    /// seem to be there.
    ///
    /// # Errors
    /// When a directory above them may not be searched.
    pub fn check_readable(&self) -> Result<(), KernelError> {
        match self.program_of(SteeringMode::Dscp).try_exists() {
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                Err(KernelError::NotPermitted {
                    action: "look into the BPF file system",
                })
            }
            _ => Ok(()),
        }
    }

    /// Makes the directories, readable by their owner alone.
    ///
    /// # Errors
    /// When `bpffs` is not a BPF file system, or may not be written to.
    pub fn prepare(&self) -> Result<(), KernelError> {
        // A service may have been given its own directory there, and nothing around that.
        let nearest = self.root.ancestors().skip(1).find(|it| it.exists());
        let is_bpffs = nearest
            .is_some_and(|it| statfs(it).is_ok_and(|info| info.filesystem_type() == BPF_FS_MAGIC));
        if !is_bpffs {
            return Err(KernelError::NoBpffs {
                path: self.bpffs.clone(),
            });
        }
        let links = [TcSide::Ingress, TcSide::Egress].map(|side| self.links(side));
        for directory in [self.root.join("maps")].into_iter().chain(links) {
            create_private(&directory)?;
        }
        Ok(())
    }

    /// Returns what is [noted](Self::note) under a name.
    #[must_use]
    pub fn noted(&self, name: &str) -> Option<PathBuf> {
        std::fs::read_link(self.root.join(name)).ok()
    }

    /// Notes a text of up to 4,095 bytes under a name without dots, in one step: as where a symbolic link leads, since
    /// a BPF file system takes no files.
    ///
    /// # Errors
    /// When the link cannot be made.
    pub fn note(&self, name: &str, text: &Path) -> Result<(), KernelError> {
        if self.noted(name).as_deref() == Some(text) {
            return Ok(());
        }
        let (new, path) = (self.marker(), self.root.join(name));
        remove_pin(&new)?;
        std::os::unix::fs::symlink(text, &new)
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|source| KernelError::Pin { path, source })
    }

    /// Where the pins of what is to come lie until they take the place of these.
    pub(super) fn staged(&self) -> Self {
        Self {
            bpffs: self.bpffs.clone(),
            root: self.root.join("next"),
        }
    }

    /// Removes these pins, and nothing above them.
    pub(super) fn discard(&self) -> Result<(), KernelError> {
        remove_all(&self.root)
    }

    /// Where the pins lie that have given their place to others, until these are there to stay.
    pub(super) fn earlier(&self) -> Self {
        Self {
            bpffs: self.bpffs.clone(),
            root: self.root.join("earlier"),
        }
    }

    /// Puts the program and the maps of `staged` in the place of these, which become the
    /// [`earlier`](Self::earlier) ones; links stay. At any time one of them has the place.
    ///
    /// # Errors
    /// When a pin cannot be moved.
    pub(super) fn adopt(&self, staged: &Self) -> Result<(), KernelError> {
        let (maps, earlier) = (self.root.join("maps"), self.earlier());
        earlier.discard()?;
        create_private(&earlier.root)?;
        if let Some(steering) = self.pinned() {
            let (from, to) = (self.program_of(steering), earlier.program_of(steering));
            std::fs::hard_link(from, &to)
                .map_err(|source| KernelError::Pin { path: to, source })?;
        }
        // Neither is there in earlier versions.
        create_private(&self.links(TcSide::Egress))?;
        if self.count_egress().exists() {
            rename(&self.count_egress(), &earlier.count_egress())?;
        }
        // Not there where somebody was killed between these two steps.
        if maps.exists() {
            rename(&maps, &earlier.root.join("maps"))?;
        }
        rename(&staged.root.join("maps"), &maps)?;
        rename(&staged.count_egress(), &self.count_egress())?;
        if let Some(steering) = staged.pinned() {
            rename(&staged.program_of(steering), &self.program_of(steering))?;
        }
        staged.discard()
    }

    /// Puts the [`earlier`](Self::earlier) program and maps back, as far as they were moved.
    ///
    /// # Errors
    /// When a pin cannot be moved.
    pub(super) fn restore(&self) -> Result<(), KernelError> {
        let (maps, earlier) = (self.root.join("maps"), self.earlier());
        let maps_before = earlier.root.join("maps");
        if maps_before.exists() {
            remove_all(&maps)?;
            rename(&maps_before, &maps)?;
        }
        if earlier.count_egress().exists() {
            rename(&earlier.count_egress(), &self.count_egress())?;
        }
        if let Some(steering) = earlier.pinned() {
            rename(&earlier.program_of(steering), &self.program_of(steering))?;
        }
        earlier.discard()
    }

    /// Removes every pin; what is attached only through them is detached.
    ///
    /// # Errors
    /// When a pin cannot be removed. No pins at all is not an error.
    pub fn remove(&self) -> Result<(), KernelError> {
        // First, so that what was made for it is not in use below.
        for device in self.counted_devices().unwrap_or_default() {
            chain::detach(self, TcSide::Egress, &device)?;
        }
        // Whatever else is there: an agent may have been killed before or after it.
        let mut interfaces = interfaces_in(&self.made_by_us()).unwrap_or_default();
        if self.pinned() == Some(SteeringMode::Mark) {
            interfaces.extend(self.linked_interfaces().unwrap_or_default());
        }
        for interface in interfaces {
            chain::detach(self, TcSide::Ingress, &interface)?;
        }
        for interface in self.linked_interfaces().unwrap_or_default() {
            self.let_go(&interface);
        }
        remove_all(&self.root)?;
        // Shared with other instances; it stays as long as one of them is up, and where it was made
        // for another user, whose service could not make it again.
        if let Some(shared) = self.root.parent()
            && std::fs::metadata(shared).is_ok_and(|it| it.uid() == geteuid().as_raw())
        {
            let _ = std::fs::remove_dir(shared);
        }
        Ok(())
    }

    /// Takes the program of that way of steering off an interface. What is not there counts as
    /// removed.
    pub(super) fn detach(
        &self,
        interface: &str,
        steering: SteeringMode,
    ) -> Result<(), KernelError> {
        if steering == SteeringMode::Mark {
            return chain::detach(self, TcSide::Ingress, interface);
        }
        self.let_go(interface);
        remove_pin(&self.link(interface))
    }

    /// Detaches an XDP program although somebody may hold its link: whoever lists the links of the
    /// machine does for a moment, and without this the program would stay as long. Kernels before
    /// 5.9 cannot; they detach once the pin is removed and nobody holds the link.
    fn let_go(&self, interface: &str) {
        if let Ok(Some(Pinned::XdpLink(link))) = raw::pinned(&self.link(interface))
            && link.interface != 0
        {
            let _ = link.detach();
        }
    }

    fn links(&self, side: TcSide) -> PathBuf {
        self.root.join(match side {
            TcSide::Ingress => "links",
            TcSide::Egress => "egress_links",
        })
    }
}

/// Removes a pin; one that is not there counts as removed.
pub(super) fn remove_pin(path: &Path) -> Result<(), KernelError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(KernelError::Pin {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// The interfaces that entries of a directory are named after, if it is there.
fn interfaces_in(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = entries
        .map(|entry| Ok(interface_name(&entry?.file_name().to_string_lossy())))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// The name of an interface's link. bpffs keeps names with a dot for itself, and
/// VLAN devices have one; a colon is in no interface's name.
fn link_name(interface: &str) -> String {
    interface.replace('.', ":")
}

/// The interface whose link has this name.
fn interface_name(link: &str) -> String {
    link.replace(':', ".")
}

/// Makes a directory that its owner alone can read, with those above it.
fn create_private(directory: &Path) -> Result<(), KernelError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| KernelError::Pin {
            path: directory.to_owned(),
            source,
        })
}

/// Removes a directory with all that is in it, if it is there.
fn remove_all(path: &Path) -> Result<(), KernelError> {
    match std::fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(KernelError::Pin {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), KernelError> {
    std::fs::rename(from, to).map_err(|source| KernelError::Pin {
        path: from.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_of_a_vlan_device_has_a_name_that_bpffs_takes() {
        let name = link_name("lan0.100");
        assert!(!name.contains('.'));
        assert_eq!(interface_name(&name), "lan0.100");
    }
}
