//! Tests of the dashboard over real connections, on embedded stores and on Redis servers.

mod actions;
mod cost;
mod description;
mod events;
mod guard;
mod pages;
mod partitions;
mod reads;
mod restricted;
mod rights;
mod stores;
mod support;
