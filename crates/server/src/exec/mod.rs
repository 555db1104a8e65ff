//! The commands on data and on the connection, one file per family. Commands about the whole server are in `admin`.

pub(crate) mod connection;
pub(crate) mod hashes;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod objects;
pub(crate) mod sets;
pub(crate) mod streams;
pub(crate) mod strings;
pub(crate) mod transactions;
