//! Settings: every value is refused or shown in a form that gives the same value again.

use std::sync::LazyLock;

use millstream_server::Settings;
use millstream_server::settings::{SETTINGS, Setting};

/// Maximum length of a name for which a suggestion is computed, which takes long for long names.
const NAME_BYTES_MAX: usize = 24;

pub(super) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    // The same for all inputs, because computing the default values takes long.
    static SETTINGS_SET: LazyLock<Settings> = LazyLock::new(Settings::new);
    let settings = &*SETTINGS_SET;
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        if name.len() <= NAME_BYTES_MAX
            && let Some(suggested) = Setting::suggest(name)
        {
            assert!(Setting::find(suggested).is_some(), "the suggestion {suggested} does not exist");
        }
        let setting = match name.as_bytes() {
            // One byte chooses a setting.
            [number] => Some(&SETTINGS[usize::from(*number) % SETTINGS.len()]),
            _ => Setting::find(name),
        };
        let Some(setting) = setting else { continue };
        match settings.set(setting.id, value) {
            Ok(()) => {
                let shown = settings.show(setting.id);
                settings.set(setting.id, &shown).expect("a shown value is accepted");
                assert_eq!(settings.show(setting.id), shown);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
