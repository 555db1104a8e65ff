//! The series of a process, and their text for Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_protocol::prometheus::{MetricKind, PrometheusText};
use parking_lot::Mutex;

use super::definitions::Definition;
use super::value::{Counter, Gauge, Histogram};

type SeriesLabels = Vec<(&'static str, String)>;

/// All series of a process. Cheap to clone: clones share the same series.
///
/// The first request for a series creates it; later requests return the same one. Keep a series that you use often:
/// each request locks the registry, updates of a series do not.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    // Sorted by name and then by labels, which is the order of the text.
    families: Arc<Mutex<BTreeMap<&'static str, Family>>>,
}

#[derive(Debug)]
struct Family {
    definition: &'static Definition,
    series: BTreeMap<SeriesLabels, Series>,
}

#[derive(Clone, Debug)]
enum Series {
    Counter(Arc<Counter>),
    Gauge(Arc<Gauge>),
    Histogram(Arc<Histogram>),
}

macro_rules! series_getter {
    ($(#[$doc:meta])* $method:ident, $variant:ident, $type:ty, $kind:pat, $new:expr) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// If the definition or the existing series has another kind.
        pub fn $method(&self, definition: &'static Definition, labels: &[(&'static str, &str)]) -> Arc<$type> {
            assert!(matches!(definition.kind, $kind), "{} is a {}", definition.name, definition.kind);
            let make = || Series::$variant(Arc::new(($new)(definition)));
            match self.series(definition, labels, make) {
                Series::$variant(series) => series,
                other => panic!("{} exists as {other:?}", definition.name),
            }
        }
    };
}

impl Registry {
    series_getter!(
        /// Returns the counter with this definition and these labels.
        counter, Counter, Counter, MetricKind::Counter, |_| Counter::default()
    );
    series_getter!(
        /// Returns the gauge with this definition and these labels.
        gauge, Gauge, Gauge, MetricKind::Gauge, |_| Gauge::default()
    );
    series_getter!(
        /// Returns the histogram with this definition and these labels.
        histogram, Histogram, Histogram, MetricKind::Histogram, |definition: &Definition| Histogram::new(definition.buckets)
    );

    /// Formats all series as Prometheus text. Equal values produce equal text.
    pub fn text(&self) -> String {
        let mut text = PrometheusText::default();
        for (name, family) in &*self.families.lock() {
            text.family(name, family.definition.help, family.definition.kind);
            for (labels, series) in &family.series {
                write_series(&mut text, name, labels, series);
            }
        }
        text.finish()
    }

    fn series(
        &self,
        definition: &'static Definition,
        labels: &[(&'static str, &str)],
        make: impl FnOnce() -> Series,
    ) -> Series {
        let mut families = self.families.lock();
        let family =
            families.entry(definition.name).or_insert_with(|| Family { definition, series: BTreeMap::new() });
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        family.series.entry(labels).or_insert_with(make).clone()
    }
}

fn write_series(text: &mut PrometheusText, name: &str, labels: &SeriesLabels, series: &Series) {
    match series {
        Series::Counter(counter) => text.sample(name, labels, counter.get()),
        Series::Gauge(gauge) => {
            if let Some(value) = gauge.get() {
                text.sample(name, labels, value);
            }
        }
        Series::Histogram(histogram) => write_histogram(text, name, labels, histogram),
    }
}

fn write_histogram(text: &mut PrometheusText, name: &str, labels: &SeriesLabels, histogram: &Histogram) {
    let snapshot = histogram.snapshot();
    let bucket = format!("{name}_bucket");
    let mut labels_and_bound = labels.clone();
    labels_and_bound.push(("le", String::new()));
    let mut write_bucket = |bound: String, count: u64| {
        labels_and_bound.last_mut().expect("the bound is the last label").1 = bound;
        text.sample(&bucket, &labels_and_bound, count);
    };
    for (bound, count) in snapshot.cumulative {
        write_bucket(bound.to_string(), count);
    }
    write_bucket("+Inf".to_owned(), snapshot.count);
    text.sample(&format!("{name}_sum"), labels, snapshot.sum);
    text.sample(&format!("{name}_count"), labels, snapshot.count);
}

#[cfg(test)]
mod tests {
    use super::super::definitions;
    use super::*;

    #[test]
    fn equal_labels_return_the_same_series() {
        let registry = Registry::default();
        registry.counter(&definitions::RECEIVED, &[("stream", "a")]).increment();
        registry.clone().counter(&definitions::RECEIVED, &[("stream", "a")]).increment();
        registry.counter(&definitions::RECEIVED, &[("stream", "b")]);
        assert_eq!(
            registry.text(),
            "# HELP millstream_messages_received_total Messages read or claimed by the worker.\n\
             # TYPE millstream_messages_received_total counter\n\
             millstream_messages_received_total{stream=\"a\"} 2\n\
             millstream_messages_received_total{stream=\"b\"} 0\n"
        );
    }

    #[test]
    fn histogram_text_has_buckets_sum_and_count() {
        let registry = Registry::default();
        let histogram = registry.histogram(&definitions::DELIVERIES, &[("group", "g")]);
        histogram.observe(1);
        histogram.observe(30);
        let text = registry.text();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines[0], "millstream_message_deliveries_bucket{group=\"g\",le=\"1\"} 1");
        assert_eq!(lines[7], "millstream_message_deliveries_bucket{group=\"g\",le=\"20\"} 1");
        assert_eq!(lines[8], "millstream_message_deliveries_bucket{group=\"g\",le=\"+Inf\"} 2");
        assert_eq!(lines[9], "millstream_message_deliveries_sum{group=\"g\"} 31");
        assert_eq!(lines[10], "millstream_message_deliveries_count{group=\"g\"} 2");
        assert_eq!(lines.len(), 11);
    }

    #[test]
    fn a_gauge_without_a_value_is_not_written() {
        let registry = Registry::default();
        let lag = registry.gauge(&definitions::GROUP_LAG, &[]);
        assert_eq!(registry.text().lines().count(), 2);
        lag.set(3.0);
        assert!(registry.text().ends_with("millstream_group_lag 3\n"));
    }

    #[test]
    #[should_panic(expected = "millstream_inflight is a gauge")]
    fn requesting_a_gauge_as_a_counter_panics() {
        Registry::default().counter(&definitions::INFLIGHT, &[]);
    }
}
