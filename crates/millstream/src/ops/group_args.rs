//! The arguments that name a consumer group.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

/// A consumer group, named by its stream and its own name.
#[derive(Args, Clone, Debug)]
pub(crate) struct GroupArgs {
    /// Stream name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) stream: String,
    /// Group name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: String,
}
