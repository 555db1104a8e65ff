//! Access control: users, what each of them may do, and the log of what was denied.
//!
//! ```text
//! Users      every user by name; the ACL file
//! User       one user, shared by its connections, which see a change of its rules at once
//! Rules      passwords and permissions of a user, parsed from rules such as `on >secret ~orders:* +@stream`
//! Selector   one set of permissions: commands as bits over the command table, patterns for keys
//! AclLog     recent denials
//! ```
//!
//! This module knows the names and categories of commands only from a [`Catalog`]. It does not know where the keys of a
//! request are: the caller finds them.

mod catalog;
mod log;
mod rules;
mod selector;
mod user;
mod users;

pub(crate) use catalog::{Catalog, CatalogCommand};
pub(crate) use log::{AclLog, DenialContext, DenialReason, LogEntry, NewDenial};
#[cfg(any(test, fuzzing))]
pub(crate) use rules::normalized_line;
pub(crate) use rules::{PasswordHash, RulesError, hash, to_hex};
pub(crate) use selector::{Denial, KeyAccess, RequiredKey, Selector};
pub(crate) use user::User;
pub(crate) use users::{AclFileError, DEFAULT_USER, SetUserError, Users};
