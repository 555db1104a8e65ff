//! Lines of an ACL file: every line is refused or printed in a form that is parsed to the same line again.

use millstream_server::fuzzing::acl_line;

pub(super) fn run(input: &[u8]) {
    for line in input.split(|&byte| byte == b'\n') {
        for line in [line, &[b"user u ", line].concat()] {
            if let Some(printed) = acl_line(line) {
                assert_eq!(acl_line(&printed).as_deref(), Some(&printed[..]), "{line:?}");
            }
        }
    }
}
