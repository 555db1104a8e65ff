//! Observes a store for all its viewers at once: the latest look, rates, trends, forecasts and an hour of history.
//!
//! ```text
//! store ── Sampler: one look per interval ──▶ Tracker ──▶ Look (rows, totals) ──▶ viewers, /metrics, alerts
//!                                               └──────▶ history
//! ```
//!
//! [`Sampler`] talks to the store, [`Tracker`] turns snapshots into rows and knows no store. Ten viewers cost the store
//! what one does. Looking changes nothing in the store: it joins no group and creates no consumer.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use millstream_worker::observe::{Query, Sampler, SamplerOptions, Sort};
//!
//! let sampler = Sampler::start(millstream_worker::connect("memory:").await?, SamplerOptions::default());
//! let mut viewer = sampler.subscribe();
//! viewer.changed().await; // the first look
//! let look = sampler.look();
//! let page = look.page(&Query { words: "orders".into(), sort: Sort::Lag, ..Query::default() }, |_| true);
//! println!("{} groups, {} match", look.totals.groups, page.matched);
//! viewer.show(page.rows.iter().map(|row| row.key.clone())); // read their details more often
//! # Ok::<(), millstream_worker::Error>(())
//! # }).unwrap();
//! ```

mod collector;
mod history;
mod order;
mod row;
mod sampler;
mod tracker;
mod viewer;

pub use history::{History, HistorySeries};
pub use order::{Page, Query, Sort};
pub use row::{Eta, GroupRow, Look, ObservedFinding, Rates, Row, RowKey, Totals, Trend};
pub use sampler::{HistoryStatus, Sampler, SamplerOptions, SamplerState, SamplerStatus, Trouble};
pub use tracker::Tracker;
pub use viewer::Viewer;
