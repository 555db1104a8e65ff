//! What commands are about, as it is named on the command line.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

/// A group, by its stream and its own name.
#[derive(Args, Clone, Debug)]
pub(crate) struct NamedGroup {
    /// The stream
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) stream: String,
    /// The group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: String,
}
