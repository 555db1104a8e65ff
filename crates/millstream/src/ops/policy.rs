//! `millstream group policy` and `millstream stream policy`: show and set policies.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::Admin;
use millstream_worker::backend::policy::{Backoff, Policy, PolicyField, PolicyValue};
use millstream_worker::backend::{Capability, PolicyInfo, Range, StreamId};
use millstream_worker::names::dead_letters_of;
use millstream_worker::operate::shapes;

use super::confirm::Confirm;
use super::connection::CommonOptions;
use super::failure::Failure;
use super::group_args::GroupArgs;
use super::output::{note, print, print_json};
use super::safe_text::printable;
use super::table::Properties;
use super::target::Target;
use super::time::{now_ms, parse_duration};
use super::value::{ABSENT, age, count, counted, millis};

pub(crate) const GROUP_EXAMPLES: &str = "\
Examples:
  millstream group policy orders billing
  millstream group policy orders billing --lease 30s --max-deliveries 5 --backoff 1s..1m
  millstream group policy orders billing --backoff off
  millstream group policy orders billing --default

Without options, the command shows the policy in force. --default removes the policy of the group, so that the \
defaults of the stream apply.";

pub(crate) const STREAM_EXAMPLES: &str = "\
Examples:
  millstream stream policy orders
  millstream stream policy orders --max-age 7d --acked-age 0s --yes
  millstream stream policy orders --max-length 1000000 --dry-run
  millstream stream policy orders --lease 30s --max-deliveries 5

Options of groups, such as --lease, are the defaults of all groups of the stream. If the policy removes entries now, the \
command asks first.";

/// Maximum number of old entries that are counted before the command asks.
const COUNTED_MAX: u64 = 10_000;
/// Number of entries that are requested at a time to count them.
const PAGE: usize = 1000;

/// The options for a policy of groups.
#[derive(Args, Clone, Debug)]
pub(crate) struct GroupFields {
    /// How long a delivered message belongs to its consumer, or `off`
    #[arg(long, value_name = "DURATION|off", value_parser = parse_time_field)]
    lease: Option<Choice>,
    /// Dead-letter a message after this number of deliveries, or `off`
    #[arg(long, value_name = "N|off", value_parser = parse_number_field)]
    max_deliveries: Option<Choice>,
    /// Dead-letter stream, or `off` for {STREAM}:dlq
    #[arg(long, value_name = "STREAM|off", value_parser = parse_key_field)]
    dlq: Option<Choice>,
    /// How long a message waits after its first delivery, and at most, or `off`
    #[arg(long, value_name = "FIRST..LONGEST|off", value_parser = parse_backoff_field)]
    backoff: Option<Choice>,
    /// Deliver new messages only while consumers have fewer than this number in hand, or `off`
    #[arg(long, value_name = "N|off", value_parser = parse_number_field)]
    max_pending: Option<Choice>,
    /// Remove a consumer that has sent no request for this long and has no pending messages, or `off`
    #[arg(long, value_name = "DURATION|off", value_parser = parse_time_field)]
    consumer_ttl: Option<Choice>,
    /// Remove the whole policy
    #[arg(long, conflicts_with_all = ["lease", "max_deliveries", "dlq", "backoff", "max_pending", "consumer_ttl"])]
    default: bool,
}

/// `group policy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct GroupPolicyCommand {
    #[command(flatten)]
    group_args: GroupArgs,
    #[command(flatten)]
    fields: GroupFields,
}

/// `stream policy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StreamPolicyCommand {
    /// Stream name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    #[command(flatten)]
    fields: GroupFields,
    /// Remove messages older than this, also unread ones, or `off`
    #[arg(long, value_name = "DURATION|off", value_parser = parse_time_field, conflicts_with = "default")]
    max_age: Option<Choice>,
    /// Remove the oldest messages beyond this number, also unread ones, or `off`
    #[arg(long, value_name = "N|off", value_parser = parse_number_field, conflicts_with = "default")]
    max_length: Option<Choice>,
    /// Remove the oldest messages beyond this size, also unread ones, or `off`; for example 500mb
    #[arg(long, value_name = "BYTES|off", value_parser = parse_bytes_field, conflicts_with = "default")]
    max_bytes: Option<Choice>,
    /// Remove messages of this age that every group has acknowledged, or `off`; 0s: at once
    #[arg(long, value_name = "DURATION|off", value_parser = parse_time_field, conflicts_with = "default")]
    acked_age: Option<Choice>,
    /// Print what would be removed now, without setting anything
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirm: Confirm,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    Off,
    Number(u64),
    Backoff(Backoff),
    Key(String),
}

#[derive(Debug, Default)]
struct PolicyChange {
    policy: Policy,
    off: Vec<PolicyField>,
}

impl PolicyChange {
    fn add(&mut self, field: PolicyField, choice: Option<&Choice>) -> Result<(), Failure> {
        let value = match choice {
            None => return Ok(()),
            Some(Choice::Off) => {
                self.off.push(field);
                return Ok(());
            }
            Some(Choice::Number(number)) => PolicyValue::Number(*number),
            Some(Choice::Backoff(backoff)) => PolicyValue::Backoff(*backoff),
            Some(Choice::Key(key)) => PolicyValue::Key(key.as_bytes()),
        };
        // 0 would switch a field off, except for ACKEDAGE.
        if !value.fits(field) || value.is_off() && field != PolicyField::AckedAge {
            return Err(Failure::Usage(out_of_range(field)));
        }
        self.policy.set(field, value);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.policy.is_empty() && self.off.is_empty()
    }
}

fn out_of_range(field: PolicyField) -> String {
    let (first, last) = field.limits().into_inner();
    let shown = |number: u64| match field {
        PolicyField::MaxDeliver
        | PolicyField::MaxPending
        | PolicyField::MaxLength
        | PolicyField::MaxBytes => count(number),
        _ => format_ms(number),
    };
    let order = if field == PolicyField::Backoff { ", and FIRST at most LONGEST" } else { "" };
    format!(
        "{} must be between {} and {}{order}; `off` switches it off",
        option_of(field),
        shown(first),
        shown(last)
    )
}

fn option_of(field: PolicyField) -> &'static str {
    match field {
        PolicyField::Lease => "--lease",
        PolicyField::MaxDeliver => "--max-deliveries",
        PolicyField::DeadLetters => "--dlq",
        PolicyField::Backoff => "--backoff",
        PolicyField::MaxPending => "--max-pending",
        PolicyField::ConsumerTtl => "--consumer-ttl",
        PolicyField::MaxAge => "--max-age",
        PolicyField::MaxLength => "--max-length",
        PolicyField::MaxBytes => "--max-bytes",
        PolicyField::AckedAge => "--acked-age",
    }
}

impl GroupFields {
    fn change(&self) -> Result<PolicyChange, Failure> {
        let mut change = PolicyChange::default();
        change.add(PolicyField::Lease, self.lease.as_ref())?;
        change.add(PolicyField::MaxDeliver, self.max_deliveries.as_ref())?;
        change.add(PolicyField::DeadLetters, self.dlq.as_ref())?;
        change.add(PolicyField::Backoff, self.backoff.as_ref())?;
        change.add(PolicyField::MaxPending, self.max_pending.as_ref())?;
        change.add(PolicyField::ConsumerTtl, self.consumer_ttl.as_ref())?;
        Ok(change)
    }
}

impl GroupPolicyCommand {
    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        let GroupArgs { stream, group } = &self.group_args;
        let change = self.fields.change()?;
        let backend = common.connect().await?;
        let target = Target::with_group(&*backend, stream, group).await?;
        refuse_lease(&target, &change)?;
        require_policies(&*backend, &target.parts[0].stream).await?;
        apply(&*backend, &target, Some(group), &change, self.fields.default).await?;
        show(common, &*backend, &target, Some(group)).await
    }
}

impl StreamPolicyCommand {
    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        let mut change = self.fields.change()?;
        change.add(PolicyField::MaxAge, self.max_age.as_ref())?;
        change.add(PolicyField::MaxLength, self.max_length.as_ref())?;
        change.add(PolicyField::MaxBytes, self.max_bytes.as_ref())?;
        change.add(PolicyField::AckedAge, self.acked_age.as_ref())?;
        let (backend, stream) = (common.connect().await?, &self.stream);
        let target = Target::existing(&*backend, stream).await?;
        refuse_lease(&target, &change)?;
        require_policies(&*backend, &target.parts[0].stream).await?;
        let mut removals = Removals::default();
        for part in &target.parts {
            removals.add(&*backend, &part.stream, &change.policy).await?;
        }
        let removals = removals.described(&change.policy);
        if self.dry_run {
            removals.iter().for_each(|what| note(&format!("would remove {what}")));
            if removals.is_empty() {
                note("would remove nothing now");
            }
            return Ok(());
        }
        if !removals.is_empty() {
            let what =
                format!("set a policy on {} that removes {}", printable(stream), removals.join(", and "));
            self.confirm.ask(&what).await?;
        }
        apply(&*backend, &target, None, &change, self.fields.default).await?;
        show(common, &*backend, &target, None).await
    }
}

/// Refuses a lease for the groups of a logical stream: workers own its partitions, and refuse to read from such a
/// group.
fn refuse_lease(target: &Target, change: &PolicyChange) -> Result<(), Failure> {
    if change.policy.get(PolicyField::Lease).is_none() {
        return Ok(());
    }
    target.refuse_partitions(
        "--lease lets the server redeliver messages, which workers that own partitions refuse",
    )
}

async fn require_policies(backend: &dyn Admin, stream: &str) -> Result<(), Failure> {
    match backend.supports(Capability::Policies, stream).await? {
        true => Ok(()),
        false => Err(Failure::Other(format!(
            "{} has no policies: only Millstream's server and folders have them\non this store, use the options of \
             `millstream work`",
            backend.location()
        ))),
    }
}

/// Changes the policy of all streams that a name stands for, or of a group on them.
async fn apply(
    backend: &dyn Admin,
    target: &Target,
    group: Option<&str>,
    change: &PolicyChange,
    resets: bool,
) -> Result<(), Failure> {
    for part in &target.parts {
        if resets {
            backend.reset_policy(&part.stream, group).await?;
        } else if !change.is_empty() {
            let set = backend.set_policy(&part.stream, group, &change.policy, &change.off).await;
            set.map_err(|error| match error.to_string() {
                refusal if !refusal.contains("needs LEASE") => error.into(),
                refusal if target.has_partitions() => Failure::Other(format!(
                    "{refusal}\nworkers that own partitions refuse a lease: use the options of `millstream work` instead"
                )),
                refusal => Failure::Other(format!(
                    "{refusal}\npass --lease too, for example --lease 30s, or switch the other options off"
                )),
            })?;
        }
    }
    Ok(())
}

/// The entries that the limits would remove now. The effect of MAXBYTES is not known in advance.
#[derive(Debug, Default)]
struct Removals {
    /// Number of entries of all streams.
    length: u64,
    /// Number of entries beyond `--max-length`.
    surplus: u64,
    /// Number of entries that are older than `--max-age`, and whether that is a lower bound.
    old: (u64, bool),
}

impl Removals {
    /// Adds what a policy removes from a stream.
    async fn add(&mut self, backend: &dyn Admin, stream: &str, policy: &Policy) -> Result<(), Failure> {
        let length = backend.stream(stream).await?.map_or(0, |info| info.length);
        self.length = self.length.saturating_add(length);
        let surplus = policy.max_length.map_or(0, |max| length.saturating_sub(max));
        self.surplus = self.surplus.saturating_add(surplus);
        if let Some(age_ms) = policy.max_age_ms {
            let old = count_before(backend, stream, now_ms().saturating_sub(age_ms)).await?;
            self.old = (self.old.0.saturating_add(old), self.old.1 || old >= COUNTED_MAX);
        }
        Ok(())
    }

    fn described(&self, policy: &Policy) -> Vec<String> {
        let mut found = Vec::new();
        let Removals { length, surplus, old: (old, is_bound) } = *self;
        if surplus > 0 {
            found.push(format!(
                "up to {} of its {} by --max-length",
                counted(surplus, "entry", "entries"),
                count(length)
            ));
        }
        if old > 0 {
            let number = match is_bound {
                true => format!("at least {} entries", count(old)),
                false => counted(old, "entry", "entries"),
            };
            found.push(format!("{number} by --max-age"));
        }
        if policy.max_bytes.is_some() && length > 0 {
            found.push("its oldest entries by --max-bytes, if it is larger".to_owned());
        }
        if policy.acked_age_ms.is_some() && length > 0 {
            found.push("entries that every group has acknowledged by --acked-age".to_owned());
        }
        found
    }
}

/// Counts the entries that are older than a time, up to [`COUNTED_MAX`].
async fn count_before(backend: &dyn Admin, stream: &str, before_ms: u64) -> Result<u64, Failure> {
    let (mut counted, mut first) = (0, StreamId::MIN);
    while counted < COUNTED_MAX {
        let page = backend.range(stream, Range::starting_at(first, PAGE)).await?;
        let old = page.iter().take_while(|entry| entry.id.ms < before_ms).count();
        counted += old as u64;
        match page.last().and_then(|entry| entry.id.next()) {
            Some(next) if old == PAGE => first = next,
            _ => break,
        }
    }
    Ok(counted)
}

async fn show(
    common: &CommonOptions,
    backend: &dyn Admin,
    target: &Target,
    group: Option<&str>,
) -> Result<(), Failure> {
    let stream = target.name.as_str();
    let mut found: Option<PolicyInfo> = None;
    let mut different = Vec::new();
    for part in &target.parts {
        match (backend.policy(&part.stream, group).await?, &mut found) {
            (None, _) => {}
            (info, None) => found = info,
            (Some(info), Some(found)) => {
                if info.in_force != found.in_force {
                    different.push(target.label(part));
                }
                merge(found, info);
            }
        }
    }
    let Some(info) = found else {
        return Err(Failure::NotFound(format!(
            "{} was deleted a moment ago",
            printable(group.unwrap_or(stream))
        )));
    };
    if let Some(one) = different.first() {
        let (one, others) = (printable(one), count(different.len() as u64));
        note(&format!(
            "{others} of the {} partitions have other policies than the first one: see {one}",
            target.parts.len()
        ));
    }
    if common.json {
        return print_json(&shapes::policy(stream, group, &info));
    }
    let mut properties = Properties::default();
    properties.push("stream", stream);
    group.into_iter().for_each(|group| properties.push("group", group));
    for field in PolicyField::ALL.into_iter().filter(|field| group.is_none() || !field.is_of_stream()) {
        let value = match info.in_force.get(field) {
            Some(value) => format_value(field, value),
            None if field == PolicyField::DeadLetters && info.in_force.max_deliveries.is_some() => {
                match &target.parts[..] {
                    [part] => format!("{}  (default)", dead_letters_of(&part.stream)),
                    _ => "{PARTITION}:dlq  (default)".to_owned(),
                }
            }
            None => ABSENT.to_owned(),
        };
        let is_inherited =
            group.is_some() && info.in_force.get(field).is_some() && !info.own.contains(&field);
        let origin = if is_inherited { "  (from the stream)" } else { "" };
        properties.push(label_of(field), format!("{value}{origin}"));
    }
    for (name, number) in &info.counters {
        let shown = match name.as_str() {
            "next-due-ms" if *number < 0 => ABSENT.to_owned(),
            "next-due-ms" => {
                let left_ms = number.unsigned_abs().saturating_sub(now_ms());
                format!("in {}", age(Duration::from_millis(left_ms)))
            }
            _ => count(number.unsigned_abs()),
        };
        let label = if name == "next-due-ms" { "next due".to_owned() } else { name.replace('-', " ") };
        properties.push(label, shown);
    }
    if let Some(owner) = &info.owner {
        let denied = if info.is_owner_denied { "  (may not add dead letters)" } else { "" };
        properties.push("owner", format!("{owner}{denied}"));
    }
    if let Some(error) = &info.dead_letter_error {
        properties.push("dlq error", error);
    }
    print(properties)
}

/// Adds the counters of another partition.
fn merge(found: &mut PolicyInfo, other: PolicyInfo) {
    for ((name, number), (_, other)) in found.counters.iter_mut().zip(other.counters) {
        *number = match (name.as_str(), *number, other) {
            ("next-due-ms", number, other) if number < 0 || other < 0 => number.max(other),
            ("next-due-ms", number, other) => number.min(other),
            (_, number, other) => number.saturating_add(other),
        };
    }
    found.dead_letter_error = found.dead_letter_error.take().or(other.dead_letter_error);
    found.is_owner_denied |= other.is_owner_denied;
}

fn label_of(field: PolicyField) -> &'static str {
    match field {
        PolicyField::Lease => "lease",
        PolicyField::MaxDeliver => "max deliveries",
        PolicyField::DeadLetters => "dead letters",
        PolicyField::Backoff => "back-off",
        PolicyField::MaxPending => "max pending",
        PolicyField::ConsumerTtl => "consumer ttl",
        PolicyField::MaxAge => "max age",
        PolicyField::MaxLength => "max length",
        PolicyField::MaxBytes => "max bytes",
        PolicyField::AckedAge => "acknowledged age",
    }
}

fn format_value(field: PolicyField, value: PolicyValue<'_>) -> String {
    match value {
        PolicyValue::Key(key) => String::from_utf8_lossy(key).into_owned(),
        PolicyValue::Backoff(Backoff { first_ms, longest_ms }) => {
            format!("{}..{}", format_ms(first_ms), format_ms(longest_ms))
        }
        PolicyValue::Number(number) => match field {
            PolicyField::MaxDeliver
            | PolicyField::MaxPending
            | PolicyField::MaxLength
            | PolicyField::MaxBytes => count(number),
            _ => format_ms(number),
        },
    }
}

/// Formats a duration so that an option accepts it again: `7d`, `90s`, `1500ms`.
fn format_ms(ms: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let exact = UNITS.iter().find(|(_, unit_ms)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms));
    match exact {
        Some((unit, unit_ms)) => format!("{}{unit}", ms / unit_ms),
        None if ms == 0 => "0s".to_owned(),
        None => format!("{ms}ms"),
    }
}

/// Parses `off`, or something else with `parse`.
fn or_off(text: &str, parse: impl FnOnce(&str) -> Result<Choice, String>) -> Result<Choice, String> {
    if text == "off" { Ok(Choice::Off) } else { parse(text).map_err(|error| format!("{error}, or off")) }
}

fn parse_time_field(text: &str) -> Result<Choice, String> {
    or_off(text, |text| Ok(Choice::Number(millis(parse_duration(text)?))))
}

fn parse_number_field(text: &str) -> Result<Choice, String> {
    or_off(text, |text| text.parse().map(Choice::Number).map_err(|_| "expected a number".to_owned()))
}

fn parse_key_field(text: &str) -> Result<Choice, String> {
    or_off(text, |text| match text.is_empty() {
        true => Err("expected the name of a stream".to_owned()),
        false => Ok(Choice::Key(text.to_owned())),
    })
}

fn parse_backoff_field(text: &str) -> Result<Choice, String> {
    let invalid = || "expected FIRST..LONGEST, for example 1s..1m".to_owned();
    or_off(text, |text| {
        let (first, longest) = text.split_once("..").ok_or_else(invalid)?;
        let parse = |text| parse_duration(text).map(millis).map_err(|_| invalid());
        Ok(Choice::Backoff(Backoff { first_ms: parse(first)?, longest_ms: parse(longest)? }))
    })
}

fn parse_bytes_field(text: &str) -> Result<Choice, String> {
    or_off(text, |text| parse_bytes(text).map(Choice::Number))
}

/// Parses a size such as `1048576`, `500mb` or `2gb`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 4] = [("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30), ("tb", 1 << 40)];
    let invalid = || "expected a size such as 1048576, 500mb or 2gb".to_owned();
    let lower = text.to_ascii_lowercase();
    let unit = UNITS.iter().find(|(unit, _)| lower.ends_with(unit));
    let (digits, factor) =
        unit.map_or((&*lower, 1), |(unit, factor)| (&lower[..lower.len() - unit.len()], *factor));
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    number.checked_mul(factor).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_with_off() {
        assert_eq!(parse_time_field("30s"), Ok(Choice::Number(30_000)));
        assert_eq!(parse_time_field("off"), Ok(Choice::Off));
        assert!(parse_time_field("30").unwrap_err().ends_with(", or off"));
        assert_eq!(parse_bytes_field("2gb"), Ok(Choice::Number(2 << 30)));
        assert_eq!(parse_bytes_field("1048576"), Ok(Choice::Number(1 << 20)));
        assert!(parse_bytes_field("2 bytes").is_err());
        assert!(parse_bytes_field("99999999999tb").is_err());
        let backoff = Backoff { first_ms: 1000, longest_ms: 60_000 };
        assert_eq!(parse_backoff_field("1s..1m"), Ok(Choice::Backoff(backoff)));
        assert!(parse_backoff_field("1s").unwrap_err().contains("FIRST..LONGEST"));
    }
}
