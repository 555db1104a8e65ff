//! The arguments of a command, kept beyond the batch they came in: queued by MULTI, or waiting for entries.

use smallvec::SmallVec;

/// Owned arguments, in one piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedArgs {
    bytes: Box<[u8]>,
    /// Where each argument ends.
    ends: Box<[usize]>,
}

impl OwnedArgs {
    pub(crate) fn new(argv: &[&[u8]]) -> OwnedArgs {
        let mut bytes = Vec::with_capacity(argv.iter().map(|arg| arg.len()).sum());
        let ends = argv
            .iter()
            .map(|arg| {
                bytes.extend_from_slice(arg);
                bytes.len()
            })
            .collect();
        OwnedArgs { bytes: bytes.into(), ends }
    }

    /// The arguments, to be parsed like any others.
    pub(crate) fn argv(&self) -> SmallVec<[&[u8]; 16]> {
        let mut start = 0;
        self.ends
            .iter()
            .map(|end| {
                let arg = &self.bytes[start..*end];
                start = *end;
                arg
            })
            .collect()
    }

    /// Memory held, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_back_as_they_were() {
        for argv in [&[][..], &[&b"GET"[..]], &[&b"SET"[..], b"", b"a\r\nb", b""]] {
            assert_eq!(OwnedArgs::new(argv).argv()[..], *argv);
        }
    }
}
