//! Arguments of a command that outlive the read buffer: of a command queued by MULTI, or of a blocked command.

use smallvec::SmallVec;

/// Owned arguments, in one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedArgs {
    /// The end offset of each argument, then the bytes of all arguments.
    packed: Box<[u8]>,
    count: usize,
}

const END_BYTES: usize = size_of::<usize>();

impl OwnedArgs {
    pub(crate) fn new<'a>(argv: impl Iterator<Item = &'a [u8]> + Clone) -> OwnedArgs {
        let (mut count, mut end) = (0, 0);
        argv.clone().for_each(|arg| {
            count += 1;
            end += arg.len();
        });
        let mut packed = Vec::with_capacity(count * END_BYTES + end);
        end = 0;
        for arg in argv.clone() {
            end += arg.len();
            packed.extend_from_slice(&end.to_ne_bytes());
        }
        argv.for_each(|arg| packed.extend_from_slice(arg));
        OwnedArgs { packed: packed.into(), count }
    }

    /// Returns the arguments as slices, in the form that command parsers take.
    pub(crate) fn argv(&self) -> SmallVec<[&[u8]; 16]> {
        let (ends, bytes) = self.packed.split_at(self.count * END_BYTES);
        let mut start = 0;
        ends.as_chunks()
            .0
            .iter()
            .map(|end| {
                let end = usize::from_ne_bytes(*end);
                let arg = &bytes[start..end];
                start = end;
                arg
            })
            .collect()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.packed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_args_return_the_same_arguments() {
        for argv in [&[][..], &[&b"GET"[..]], &[&b"SET"[..], b"", b"a\r\nb", b""]] {
            assert_eq!(OwnedArgs::new(argv.iter().copied()).argv()[..], *argv);
        }
    }
}
