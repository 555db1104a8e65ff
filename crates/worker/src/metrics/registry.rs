//! All series of a process, and their text.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::definitions::Definition;
use super::text::{Kind, Text};
use super::value::{Counter, Gauge, Histogram};

type Labels = Vec<(&'static str, String)>;

/// All series of a process. Cheap to clone: clones are the same registry.
///
/// Asking for a series makes it, or gives the one that is there. Keep what you got: the registry is locked only
/// for asking and for writing the text.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    // In the order of names and then of labels, which is the order of the text.
    families: Arc<Mutex<BTreeMap<&'static str, Family>>>,
}

#[derive(Debug)]
struct Family {
    definition: &'static Definition,
    series: BTreeMap<Labels, Series>,
}

#[derive(Clone, Debug)]
enum Series {
    Counter(Arc<Counter>),
    Gauge(Arc<Gauge>),
    Histogram(Arc<Histogram>),
}

macro_rules! series_of {
    ($(#[$doc:meta])* $method:ident, $variant:ident, $type:ty, $kind:pat, $new:expr) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// If the series is there as another kind.
        pub fn $method(&self, definition: &'static Definition, labels: &[(&'static str, &str)]) -> Arc<$type> {
            assert!(matches!(definition.kind, $kind), "{} is a {}", definition.name, definition.kind);
            let make = || Series::$variant(Arc::new(($new)(definition)));
            match self.series(definition, labels, make) {
                Series::$variant(series) => series,
                other => panic!("{} is there as {other:?}", definition.name),
            }
        }
    };
}

impl Registry {
    series_of!(
        /// The counter of this definition and these labels.
        counter, Counter, Counter, Kind::Counter, |_| Counter::default()
    );
    series_of!(
        /// The gauge of this definition and these labels.
        gauge, Gauge, Gauge, Kind::Gauge, |_| Gauge::default()
    );
    series_of!(
        /// The histogram of this definition and these labels.
        histogram, Histogram, Histogram, Kind::Histogram, |definition: &Definition| Histogram::new(definition.buckets)
    );

    /// Everything, in the text format of Prometheus. The same values give the same text.
    pub fn text(&self) -> String {
        let mut text = Text::default();
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

fn write_series(text: &mut Text, name: &str, labels: &Labels, series: &Series) {
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

fn write_histogram(text: &mut Text, name: &str, labels: &Labels, histogram: &Histogram) {
    let seen = histogram.seen();
    let bucket = format!("{name}_bucket");
    let mut labels_and_bound = labels.clone();
    labels_and_bound.push(("le", String::new()));
    let mut write_bucket = |bound: String, count: u64| {
        labels_and_bound.last_mut().expect("the bound is the last label").1 = bound;
        text.sample(&bucket, &labels_and_bound, count);
    };
    for (bound, count) in seen.up_to {
        write_bucket(bound.to_string(), count);
    }
    write_bucket("+Inf".to_owned(), seen.count);
    text.sample(&format!("{name}_sum"), labels, seen.sum);
    text.sample(&format!("{name}_count"), labels, seen.count);
}

#[cfg(test)]
mod tests {
    use super::super::definitions;
    use super::*;

    #[test]
    fn asking_twice_gives_the_same_series() {
        let registry = Registry::default();
        registry.counter(&definitions::RECEIVED, &[("stream", "a")]).increment();
        registry.clone().counter(&definitions::RECEIVED, &[("stream", "a")]).increment();
        registry.counter(&definitions::RECEIVED, &[("stream", "b")]);
        assert_eq!(
            registry.text(),
            "# HELP millstream_messages_received_total Messages read or claimed for handlers.\n\
             # TYPE millstream_messages_received_total counter\n\
             millstream_messages_received_total{stream=\"a\"} 2\n\
             millstream_messages_received_total{stream=\"b\"} 0\n"
        );
    }

    #[test]
    fn a_histogram_is_written_with_all_its_parts() {
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
    fn what_is_not_known_is_not_written() {
        let registry = Registry::default();
        let lag = registry.gauge(&definitions::GROUP_LAG, &[]);
        assert_eq!(registry.text().lines().count(), 2);
        lag.set(3.0);
        assert!(registry.text().ends_with("millstream_group_lag 3\n"));
    }

    #[test]
    #[should_panic(expected = "millstream_inflight is a gauge")]
    fn a_gauge_is_not_a_counter() {
        Registry::default().counter(&definitions::INFLIGHT, &[]);
    }
}
