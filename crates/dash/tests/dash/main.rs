//! Tests of the dashboard over real connections, on embedded stores and on Redis servers.

mod guard;
mod pages;
mod support;
