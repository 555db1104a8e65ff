//! The rights of the users who own policies, for the store: it knows only their names.

use std::sync::{Arc, Weak};

use millstream_store::PolicyRights;

use crate::acl::User;
use crate::command::{check_request, required_keys};
use crate::event_log::EventKind;
use crate::state::Server;
use crate::table;

const SHOWN_KEY_BYTES: usize = 100;

pub(crate) fn begin(server: &Arc<Server>) {
    // A weak reference: the server owns the store.
    server.store.set_policy_rights(Box::new(OwnerRights(Arc::downgrade(server))));
}

struct OwnerRights(Weak<Server>);

impl PolicyRights for OwnerRights {
    fn allow_dead_letters(&self, owner: &[u8], stream: &[u8], dead_letters: &[u8]) -> bool {
        let owner = self.0.upgrade().and_then(|server| server.users.get(owner));
        owner.is_some_and(|owner| owner.is_unrestricted() || may_move(&owner, stream, dead_letters))
    }

    fn note_denied(&self, owner: &[u8], stream: &[u8], dead_letters: &[u8]) {
        let Some(server) = self.0.upgrade() else { return };
        // The first two words identify the event, so each stream has lines of its own. A key can have megabytes.
        let shown = |key: &[u8]| key[..key.len().min(SHOWN_KEY_BYTES)].escape_ascii().to_string();
        let (stream, dead_letters) = (shown(stream), shown(dead_letters));
        let what = format!("{stream}: may not add dead letters to {dead_letters}");
        server.audit(EventKind::PolicyDenied, "", Some(&String::from_utf8_lossy(owner)), &what);
    }
}

/// Returns whether the user may set a policy that moves entries of `stream` to `dead_letters`, or may read the one and
/// add to the other. Like ACL DRYRUN, this does not ask whether the user can log in.
fn may_move(user: &User, stream: &[u8], dead_letters: &[u8]) -> bool {
    let may = |argv: &[&[u8]]| {
        let spec = table::find(argv).expect("the command exists");
        check_request(user, spec, argv, &required_keys(spec, argv)).is_ok()
    };
    may(&[b"XPOLICY", b"SET", stream, b"DLQ", dead_letters])
        || may(&[b"XADD", dead_letters, b"*", b"f", b"v"])
            && (may(&[b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", stream, b">"])
                || may(&[b"XRANGE", stream, b"-", b"+"]))
}
