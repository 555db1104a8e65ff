//! One user, shared by the connections that have authenticated as it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::rules::{PasswordHash, Rules, line_of};
use super::selector::{Denial, RequiredKey};

/// A user. Its connections see a change of its rules with their next command.
pub(crate) struct User {
    name: Box<[u8]>,
    /// Whether it may run every command on every key. Read for every request, so it is computed when rules change.
    is_unrestricted: AtomicBool,
    /// Whether it was removed. Then its connections are closed and may do nothing.
    is_removed: AtomicBool,
    rules: RwLock<Arc<Rules>>,
}

impl User {
    pub(super) fn new(name: &[u8], rules: Rules) -> User {
        User {
            name: name.into(),
            is_unrestricted: AtomicBool::new(rules.allow_everything()),
            is_removed: AtomicBool::new(false),
            rules: RwLock::new(Arc::new(rules)),
        }
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    #[inline]
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.is_unrestricted.load(Ordering::Relaxed)
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    /// Whether a client could log in as it now with the password that has this hash.
    pub(crate) fn accepts(&self, password: &PasswordHash) -> bool {
        !self.is_removed() && self.rules.read().accept_hash(password)
    }

    /// Returns its line in ACL LIST and in the ACL file.
    pub(crate) fn line(&self) -> Vec<u8> {
        line_of(&self.name, &self.rules())
    }

    /// Returns an error if it may not run this request. A user that was removed may run nothing.
    pub(crate) fn check(
        &self,
        command: usize,
        argv: &[&[u8]],
        keys: &[RequiredKey<'_>],
    ) -> Result<(), Denial> {
        let rules = self.rules.read();
        if self.is_removed() { Err(Denial::Command) } else { rules.check(command, argv, keys) }
    }

    pub(super) fn set_rules(&self, rules: Rules) {
        let mut current = self.rules.write();
        self.is_unrestricted.store(rules.allow_everything() && !self.is_removed(), Ordering::Relaxed);
        *current = Arc::new(rules);
    }

    pub(super) fn remove(&self) {
        let _rules = self.rules.write();
        self.is_removed.store(true, Ordering::Release);
        self.is_unrestricted.store(false, Ordering::Relaxed);
    }
}
