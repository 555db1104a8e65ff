//! The TLS sessions that clients can resume.
//!
//! rustls' cache limits their number; this one also limits their age. A new configuration has a new cache, so nobody
//! resumes a session that an earlier certificate or authority has allowed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

const TIME_BYTES: usize = 8;

/// Sessions, each with the time at which it was stored.
#[derive(Debug)]
pub(super) struct SessionCache {
    sessions: Arc<ServerSessionMemoryCache>,
    timeout: Duration,
    began: Instant,
}

impl SessionCache {
    pub(super) fn new(size: usize, timeout: Duration) -> SessionCache {
        SessionCache { sessions: ServerSessionMemoryCache::new(size), timeout, began: Instant::now() }
    }

    /// Returns the session without its time, or `None` if it is too old.
    fn open(&self, stored: Vec<u8>) -> Option<Vec<u8>> {
        let (time, session) = stored.split_first_chunk::<TIME_BYTES>()?;
        let stored_at = Duration::from_millis(u64::from_le_bytes(*time));
        (self.began.elapsed().saturating_sub(stored_at) < self.timeout).then(|| session.to_vec())
    }
}

impl StoresServerSessions for SessionCache {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.sessions.put(key, [&now_ms.to_le_bytes()[..], &value].concat())
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions.get(key).and_then(|stored| self.open(stored))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions.take(key).and_then(|stored| self.open(stored))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_expire_and_their_number_is_limited() {
        let cache = SessionCache::new(2, Duration::from_secs(3600));
        for key in ["a", "b", "c"] {
            assert!(cache.put(key.into(), format!("session {key}").into()));
        }
        assert_eq!(cache.get(b"a"), None);
        assert_eq!(cache.get(b"c").as_deref(), Some(&b"session c"[..]));
        assert_eq!(cache.take(b"b").as_deref(), Some(&b"session b"[..]));
        assert_eq!(cache.take(b"b"), None);

        let cache = SessionCache::new(2, Duration::ZERO);
        cache.put("a".into(), "session".into());
        assert_eq!(cache.get(b"a"), None);
    }
}
