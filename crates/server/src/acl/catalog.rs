//! The commands and categories that rules can name.

pub(crate) struct CatalogCommand {
    /// The full name in lower case, such as `get` or `xgroup|create`.
    pub(crate) name: &'static str,
    /// Its categories, as bits of [`Catalog::categories`].
    pub(crate) categories: u32,
}

pub(crate) struct Catalog {
    /// Every command, by its index in the command table. The subcommands of a command follow it.
    pub(crate) commands: Box<[CatalogCommand]>,
    /// Every category: its name without `@`, and its bit.
    pub(crate) categories: Box<[(&'static str, u32)]>,
}

impl Catalog {
    /// Returns the index of the command or subcommand with this full name in lower case.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        self.commands.iter().position(|command| command.name.as_bytes() == name)
    }

    pub(super) fn with_subcommands(&self, index: usize) -> std::ops::Range<usize> {
        let name = self.commands[index].name;
        let is_subcommand =
            |other: &&CatalogCommand| other.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('|'));
        index..index + 1 + self.commands[index + 1..].iter().take_while(is_subcommand).count()
    }

    /// Returns the bit of the category with this name, in any case.
    pub(super) fn category(&self, name: &[u8]) -> Option<u32> {
        let found = self.categories.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|(_, bit)| *bit)
    }
}
