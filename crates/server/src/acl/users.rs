//! Every user by name, and the ACL file that contains them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_engine::stream::check_name;
use parking_lot::{Mutex, RwLock};

use super::catalog::Catalog;
use super::rules::{Rules, RulesError, is_user_name, parse_line, words};
use super::user::User;

/// The user of a connection that has not authenticated. It always exists.
pub(crate) const DEFAULT_USER: &[u8] = b"default";

/// The name of the user of the server's own connections. A user of this name in the ACL is another one.
const INTERNAL_USER: &[u8] = b"(internal)";

/// Maximum number of invalid lines of an ACL file that an error names.
const NAMED_ERRORS_MAX: usize = 10;

pub(crate) struct Users {
    catalog: Catalog,
    users: RwLock<BTreeMap<Box<[u8]>, Arc<User>>>,
    default_user: Arc<User>,
    /// The user of sessions that have yet to authenticate. It is in no list and may do nothing.
    unauthenticated_user: Arc<User>,
    /// The user of the server's own connections. It is in no list and may do everything.
    internal_user: Arc<User>,
    file: Option<PathBuf>,
    /// Locked while the file is written.
    saving: Mutex<()>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SetUserError {
    /// A name cannot contain spaces or NUL bytes.
    InvalidName,
    NameTooLong,
    Rules(RulesError),
}

#[derive(Debug)]
pub(crate) enum AclFileError {
    NotConfigured,
    Unreadable(String),
    Invalid(String),
    /// The file and the setting `requirepass` both define the user `default`.
    TwoPasswords(PathBuf),
    Unwritable(String),
}

impl std::fmt::Display for AclFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AclFileError::NotConfigured => f.write_str(
                "This Redis instance is not configured to use an ACL file. To store users in a file, start the \
                 server with the setting aclfile",
            ),
            AclFileError::Unreadable(reason)
            | AclFileError::Invalid(reason)
            | AclFileError::Unwritable(reason) => f.write_str(reason),
            AclFileError::TwoPasswords(path) => write!(
                f,
                "the ACL file {} defines the user default, and requirepass is set too. Remove one of them",
                path.display()
            ),
        }
    }
}

impl Users {
    /// Returns a set with the user `default`, whose password is `requirepass`, and the users of the ACL file, if there
    /// is one. An empty path means that there is no file.
    pub(crate) fn open(catalog: Catalog, requirepass: &str, aclfile: &str) -> Result<Users, AclFileError> {
        let default_user = Arc::new(User::new(DEFAULT_USER, default_rules(requirepass, &catalog)));
        let users = Users {
            users: RwLock::new(BTreeMap::from([(DEFAULT_USER.into(), Arc::clone(&default_user))])),
            unauthenticated_user: Arc::new(User::new(DEFAULT_USER, Rules::of_new_user(&catalog))),
            internal_user: Arc::new(User::new(INTERNAL_USER, Rules::of_default_user(&catalog))),
            default_user,
            file: (!aclfile.is_empty()).then(|| PathBuf::from(aclfile)),
            saving: Mutex::new(()),
            catalog,
        };
        if let Some(path) = &users.file {
            let loaded = users.read_file(path)?;
            if !requirepass.is_empty() && loaded.contains_key(DEFAULT_USER) {
                return Err(AclFileError::TwoPasswords(path.clone()));
            }
            users.replace(loaded, requirepass);
        }
        Ok(users)
    }

    pub(crate) fn default_user(&self) -> &Arc<User> {
        &self.default_user
    }

    pub(crate) fn unauthenticated_user(&self) -> &Arc<User> {
        &self.unauthenticated_user
    }

    pub(crate) fn internal_user(&self) -> &Arc<User> {
        &self.internal_user
    }

    pub(crate) fn requires_login(&self) -> bool {
        self.default_user.rules().requires_login()
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.read().get(name).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        self.users.read().len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.users.read().values().cloned().collect()
    }

    /// Returns the user if the name and the password are right and the user is on.
    ///
    /// An unknown name takes as long as a wrong password.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.get(name);
        let is_right = user.as_ref().unwrap_or(&self.unauthenticated_user).rules().accept(password);
        user.filter(|_| is_right)
    }

    /// Sets the only password of `default`. If it is empty, no password is required.
    pub(crate) fn set_default_password(&self, password: &str) {
        let _users = self.users.write();
        let mut rules = Rules::clone(&self.default_user.rules());
        rules.set_only_password(password);
        self.default_user.set_rules(rules);
    }

    /// Applies rules to a user, and creates the user if it does not exist. Applies all rules or none.
    pub(crate) fn set(&self, name: &[u8], args: &[&[u8]]) -> Result<(), SetUserError> {
        if !is_user_name(name) {
            return Err(SetUserError::InvalidName);
        }
        let mut users = self.users.write();
        let known = users.get(name).cloned();
        if known.is_none() && check_name(name).is_err() {
            return Err(SetUserError::NameTooLong);
        }
        let mut rules = known
            .as_ref()
            .map_or_else(|| Rules::of_new_user(&self.catalog), |user| Rules::clone(&user.rules()));
        rules.apply_all(args, &self.catalog).map_err(SetUserError::Rules)?;
        match known {
            Some(user) => user.set_rules(rules),
            None => {
                users.insert(name.into(), Arc::new(User::new(name, rules)));
            }
        }
        Ok(())
    }

    /// Removes the users with these names. Returns those that existed. The caller closes their connections.
    pub(crate) fn remove(&self, names: &[&[u8]]) -> Vec<Arc<User>> {
        let mut users = self.users.write();
        let removed: Vec<Arc<User>> = names.iter().filter_map(|name| users.remove(*name)).collect();
        removed.iter().for_each(|user| user.remove());
        removed
    }

    /// Replaces all users by those of the ACL file, or none of them if a line is invalid. If the file does not define
    /// `default`, its password is `requirepass`.
    ///
    /// Returns the users that changed or were removed. The caller closes their connections.
    pub(crate) fn load(&self, requirepass: &str) -> Result<Vec<Arc<User>>, AclFileError> {
        let path = self.file.as_ref().ok_or(AclFileError::NotConfigured)?;
        Ok(self.replace(self.read_file(path)?, requirepass))
    }

    fn replace(&self, mut loaded: BTreeMap<Box<[u8]>, Rules>, requirepass: &str) -> Vec<Arc<User>> {
        loaded.entry(DEFAULT_USER.into()).or_insert_with(|| default_rules(requirepass, &self.catalog));
        let mut users = self.users.write();
        let mut changed = Vec::new();
        users.retain(|name, user| {
            let Some(rules) = loaded.remove(name) else {
                user.remove();
                changed.push(Arc::clone(user));
                return false;
            };
            if rules != *user.rules() {
                user.set_rules(rules);
                changed.push(Arc::clone(user));
            }
            true
        });
        users.extend(loaded.into_iter().map(|(name, rules)| {
            let user = Arc::new(User::new(&name, rules));
            (name, user)
        }));
        changed
    }

    fn read_file(&self, path: &Path) -> Result<BTreeMap<Box<[u8]>, Rules>, AclFileError> {
        let text = fs::read(path).map_err(|error| {
            let path = path.display();
            AclFileError::Unreadable(format!("Error loading ACLs, opening file '{path}': {error}"))
        })?;
        let mut found = BTreeMap::new();
        let mut errors = Vec::new();
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let error = match parse_line(line, &self.catalog) {
                None => "should start with user keyword followed by the username".to_owned(),
                Some((name, _)) if found.contains_key(name) => {
                    format!("Duplicate user '{}'", String::from_utf8_lossy(name))
                }
                Some((_, Err(error))) => describe(&error),
                Some((name, Ok(rules))) => {
                    found.insert(name.into(), rules);
                    continue;
                }
            };
            errors.push(format!("{}:{}: {error}. ", path.display(), number + 1));
        }
        if errors.is_empty() {
            return Ok(found);
        }
        let mut text = errors.iter().take(NAMED_ERRORS_MAX).map(String::as_str).collect::<String>();
        if let Some(further @ 1..) = errors.len().checked_sub(NAMED_ERRORS_MAX) {
            let _ = write!(text, "Further invalid lines: {further}. ");
        }
        text.push_str(
            "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
        );
        Err(AclFileError::Invalid(text))
    }

    /// Writes all users to the ACL file. The old file stays until the new one is complete and synced.
    pub(crate) fn save(&self) -> Result<(), AclFileError> {
        let path = self.file.as_ref().ok_or(AclFileError::NotConfigured)?;
        let _turn = self.saving.lock();
        let mut text = Vec::new();
        for user in self.all() {
            text.extend_from_slice(&user.line());
            text.push(b'\n');
        }
        write_file(path, &text).map_err(|error| {
            AclFileError::Unwritable(format!("cannot write the ACL file {}: {error}", path.display()))
        })
    }
}

fn default_rules(requirepass: &str, catalog: &Catalog) -> Rules {
    let mut rules = Rules::of_default_user(catalog);
    rules.set_only_password(requirepass);
    rules
}

/// Describes invalid rules of the file. This text is logged, so it does not contain passwords.
fn describe(error: &RulesError) -> String {
    match error {
        RulesError::Unmatched { .. } => "Unmatched parenthesis in selector definition".to_owned(),
        RulesError::Rule { rule, error } => {
            // A rule can be a selector, with rules in it.
            let shown: Vec<_> = words(rule).map(without_password).collect();
            format!("Error in applying operation '{}': {error}", shown.join(" "))
        }
    }
}

/// Returns the rule, without the password if it is about one.
fn without_password(rule: &[u8]) -> String {
    let begin = rule.iter().take_while(|&&byte| byte == b'(').count();
    match rule.get(begin) {
        Some(b'<' | b'>' | b'#' | b'!') => format!("{}(redacted)", String::from_utf8_lossy(&rule[..=begin])),
        _ => String::from_utf8_lossy(rule).into_owned(),
    }
}

/// Replaces a file by a new one with this content. Only its owner can read the new file.
fn write_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = (|| {
        // A file can be left from a server that was killed. Only a new file has no other owner, permissions or target.
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn a_file_or_link_at_the_temporary_path_is_not_written_to() {
        let folder = std::env::temp_dir().join(format!("millstream-acl-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, victim) = (folder.join("users.acl"), folder.join("victim"));
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, folder.join(format!("users.acl.{}.tmp", std::process::id()))).unwrap();
        write_file(&path, b"user default off\n").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"untouched");
        assert_eq!(fs::read(&path).unwrap(), b"user default off\n");
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode(), 0o100_600);
        fs::remove_dir_all(&folder).unwrap();
    }
}
