//! The address space of a program: regions that lie far apart, so that no address of one leads into
//! another.

use crate::fault::Fault;

/// Regions by their number, which is the upper half of their addresses.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    regions: Vec<Vec<u8>>,
}

/// A region of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region(u32);

/// Above zero, so that an address a little below a region is still no address of another.
const FIRST_BYTE: u64 = 1 << 30;

impl Region {
    /// The address of its first byte.
    pub(crate) const fn start(self) -> u64 {
        // Zero is the null pointer, and no region's.
        ((self.0 as u64 + 1) << 32) + FIRST_BYTE
    }

    /// Tells if the address is one of this region's, inside of its bytes or not.
    pub(crate) const fn contains(self, address: u64) -> bool {
        address >> 32 == self.0 as u64 + 1
    }
}

impl Memory {
    /// Makes a region of so many zeros.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Region {
        let number = u32::try_from(self.regions.len()).expect("regions are few");
        self.regions.push(vec![0; bytes]);
        Region(number)
    }

    /// Puts other bytes, as many as there may be, in the place of a region's.
    pub(crate) fn replace(&mut self, region: Region, bytes: &[u8]) {
        self.regions[region.0 as usize] = bytes.to_vec();
    }

    /// The bytes of a region.
    pub(crate) fn region(&self, region: Region) -> &[u8] {
        &self.regions[region.0 as usize]
    }

    /// The bytes at an address, if all of them are of one region.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Result<&[u8], Fault> {
        let (region, offset) = Self::place(address, length)?;
        let bytes = self.regions.get(region).map(Vec::as_slice);
        let found = bytes.and_then(|bytes| bytes.get(offset..offset + length));
        found.ok_or(Fault::OutOfBounds { address, length })
    }

    /// The same, to be written.
    pub(crate) fn bytes_mut(&mut self, address: u64, length: usize) -> Result<&mut [u8], Fault> {
        let (region, offset) = Self::place(address, length)?;
        let bytes = self.regions.get_mut(region).map(Vec::as_mut_slice);
        let found = bytes.and_then(|bytes| bytes.get_mut(offset..offset + length));
        found.ok_or(Fault::OutOfBounds { address, length })
    }

    /// The number, of up to eight bytes, at an address.
    pub(crate) fn load(&self, address: u64, length: usize) -> Result<u64, Fault> {
        let mut word = [0; 8];
        word[..length].copy_from_slice(self.bytes(address, length)?);
        Ok(u64::from_le_bytes(word))
    }

    /// Writes the lower bytes of a number.
    pub(crate) fn store(&mut self, address: u64, length: usize, number: u64) -> Result<(), Fault> {
        let bytes = self.bytes_mut(address, length)?;
        bytes.copy_from_slice(&number.to_le_bytes()[..length]);
        Ok(())
    }

    /// The index of the region, and how far within it the address is.
    fn place(address: u64, length: usize) -> Result<(usize, usize), Fault> {
        let out_of_bounds = Fault::OutOfBounds { address, length };
        let region = (address >> 32)
            .checked_sub(1)
            .ok_or(out_of_bounds.clone())?;
        let offset = (address & 0xffff_ffff).checked_sub(FIRST_BYTE);
        Ok((region as usize, offset.ok_or(out_of_bounds)? as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_beyond_a_region_is_refused_on_both_sides() {
        let mut memory = Memory::default();
        let (one, other) = (memory.allocate(8), memory.allocate(16));
        memory.store(other.start() + 12, 4, 0x0403_0201).unwrap();
        assert_eq!(memory.load(other.start() + 13, 2).unwrap(), 0x0302);
        assert_eq!(memory.region(one), [0; 8]);
        for (address, length) in [
            (one.start() + 1, 8),
            (one.start() - 1, 1),
            (other.start() + 16, 1),
            (0, 1),
            (u64::MAX, 8),
        ] {
            let refused = Fault::OutOfBounds { address, length };
            assert_eq!(memory.load(address, length), Err(refused.clone()));
            assert_eq!(memory.store(address, length, 0), Err(refused));
        }
        assert!(other.contains(other.start() - 1) && !one.contains(other.start()));
    }
}
