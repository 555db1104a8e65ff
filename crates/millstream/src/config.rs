//! Where settings come from: a flag wins over the environment, the environment over the file, the file over
//! what the server does by itself.

use std::fmt;
use std::path::{Path, PathBuf};

use millstream_server::Settings;
use millstream_server::settings::{Id, Refused, SETTINGS, Setting};

const CONFIG_ENV_NAME: &str = "MILLSTREAM_CONFIG";
const ENV_PREFIX: &str = "MILLSTREAM_";

/// Why settings could not be read.
#[derive(Debug)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file is not TOML.
    NotToml { path: PathBuf, why: String },
    /// There is no such setting.
    Unknown { whence: Source, name: String, suggestion: Option<String> },
    /// The setting takes no such value.
    Refused { whence: Source, name: String, value: String, why: Refused },
    /// A value of the file that is neither text, number nor switch.
    WrongShape { path: PathBuf, name: String },
}

/// Where a value stood.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Flag,
    Environment,
    File(PathBuf),
}

impl Source {
    /// How a setting is written there.
    fn spell(&self, name: &str) -> String {
        match self {
            Source::Flag => format!("--{name}"),
            Source::Environment => Setting::find(name).map_or_else(|| name.to_owned(), Setting::env_name),
            Source::File(path) => format!("{}: {name}", path.display()),
        }
    }
}

impl ConfigError {
    /// Whether what was asked makes no sense, as against: cannot be done here and now.
    pub(crate) fn is_usage(&self) -> bool {
        !matches!(self, ConfigError::Unreadable { .. })
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable { path, source } => {
                write!(f, "cannot read the configuration file {}: {source}", path.display())
            }
            ConfigError::NotToml { path, why } => {
                write!(f, "the configuration file {} is not valid TOML:\n{why}", path.display())
            }
            ConfigError::Unknown { whence, name, suggestion } => {
                write!(f, "{}: there is no such setting", whence.spell(name))?;
                match suggestion {
                    Some(suggestion) => write!(f, ". Did you mean {suggestion}?"),
                    None => f.write_str(". `millstream serve --help` lists them all"),
                }
            }
            ConfigError::Refused { whence, name, value, why } => {
                let sign = if matches!(whence, Source::Environment) { "=" } else { " " };
                write!(f, "{}{sign}{value}: {why}", whence.spell(name))
            }
            ConfigError::WrongShape { path, name } => write!(
                f,
                "{}: {name} must be a text, a number, true or false, or a list of texts",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Reads all layers, the weakest first, so that each overrides what came before.
pub(crate) fn load(config_path: Option<PathBuf>, flags: &[(Id, String)]) -> Result<Settings, ConfigError> {
    let settings = Settings::new();
    if let Some(path) = config_path.or_else(|| std::env::var_os(CONFIG_ENV_NAME).map(PathBuf::from)) {
        apply_file(&settings, &path)?;
    }
    apply_environment(&settings, std::env::vars())?;
    for (id, text) in flags {
        set(&settings, *id, text, Source::Flag)?;
    }
    Ok(settings)
}

fn apply_file(settings: &Settings, path: &Path) -> Result<(), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    apply_toml(settings, path, &text)
}

fn apply_toml(settings: &Settings, path: &Path, text: &str) -> Result<(), ConfigError> {
    let table: toml::Table = text.parse().map_err(|why: toml::de::Error| ConfigError::NotToml {
        path: path.to_owned(),
        why: why.to_string(),
    })?;
    for (name, value) in &table {
        let whence = Source::File(path.to_owned());
        let Some(setting) = Setting::find(name) else {
            let suggestion = Setting::suggest(name).map(str::to_owned);
            return Err(ConfigError::Unknown { whence, name: name.clone(), suggestion });
        };
        let text = toml_text(value)
            .ok_or_else(|| ConfigError::WrongShape { path: path.to_owned(), name: name.clone() })?;
        set(settings, setting.id, &text, whence)?;
    }
    Ok(())
}

/// A TOML value in the words that flags use.
fn toml_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(on) => Some(String::from(if *on { "yes" } else { "no" })),
        toml::Value::Array(items) => {
            let words: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            words.map(|words| words.join(" "))
        }
        _ => None,
    }
}

/// Variables that begin like ours and are not may belong to somebody else: Kubernetes sets
/// `MILLSTREAM_SERVICE_HOST` and `MILLSTREAM_PORT=tcp://…` for a service of our name. Only what looks
/// like a misspelt setting is refused.
fn apply_environment(
    settings: &Settings,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<(), ConfigError> {
    for (variable, text) in variables {
        let Some(rest) = variable.strip_prefix(ENV_PREFIX) else { continue };
        if variable == CONFIG_ENV_NAME || text.starts_with("tcp://") {
            continue;
        }
        let name = rest.replace('_', "-").to_ascii_lowercase();
        match SETTINGS.iter().find(|setting| setting.name == name) {
            Some(setting) => set(settings, setting.id, &text, Source::Environment)?,
            None => refuse_misspelt(&variable, &name)?,
        }
    }
    Ok(())
}

fn refuse_misspelt(variable: &str, name: &str) -> Result<(), ConfigError> {
    match Setting::suggest(name).and_then(Setting::find) {
        None => Ok(()),
        Some(meant) => Err(ConfigError::Unknown {
            whence: Source::Environment,
            name: variable.to_owned(),
            suggestion: Some(meant.env_name()),
        }),
    }
}

fn set(settings: &Settings, id: Id, text: &str, whence: Source) -> Result<(), ConfigError> {
    let name = id.setting().name.to_owned();
    let refused = |why| ConfigError::Refused { whence, name, value: text.to_owned(), why };
    settings.set(id, text).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toml(text: &str) -> Result<Settings, String> {
        let settings = Settings::new();
        apply_toml(&settings, Path::new("m.toml"), text).map_err(|error| error.to_string())?;
        Ok(settings)
    }

    fn environment(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let settings = Settings::new();
        let variables = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        apply_environment(&settings, variables).map_err(|error| error.to_string())?;
        Ok(settings)
    }

    #[test]
    fn a_file_may_use_toml_types_or_texts() {
        let settings = toml(
            "port = 7000\nexact-lag = false\nproto-max-bulk-len = '64mb'\nbind = ['127.0.0.1', '::1']\n",
        )
        .unwrap();
        assert_eq!(settings.number(Id::Port), 7000);
        assert!(!settings.is_on(Id::ExactLag));
        assert_eq!(settings.number(Id::ProtoMaxBulkLen), 64 << 20);
        assert_eq!(settings.text(Id::Bind), "127.0.0.1 ::1");
    }

    #[test]
    fn errors_of_a_file_name_the_file_the_key_and_the_way_out() {
        let refusal = |text| toml(text).err().unwrap();
        assert_eq!(refusal("prot = 1"), "m.toml: prot: there is no such setting. Did you mean port?");
        assert_eq!(
            refusal("port = 70000"),
            "m.toml: port 70000: argument must be between 0 and 65535 inclusive"
        );
        assert_eq!(
            refusal("port = 1.5"),
            "m.toml: port must be a text, a number, true or false, or a list of texts"
        );
        assert!(refusal("port =").starts_with("the configuration file m.toml is not valid TOML:\n"));
    }

    #[test]
    fn the_environment_spells_settings_in_capitals() {
        let settings = environment(&[("MILLSTREAM_EXACT_LAG", "no"), ("MILLSTREAM_PORT", "7001")]).unwrap();
        assert!(!settings.is_on(Id::ExactLag));
        assert_eq!(settings.number(Id::Port), 7001);
    }

    #[test]
    fn misspelt_variables_are_refused_and_those_of_kubernetes_are_not_ours() {
        assert_eq!(
            environment(&[("MILLSTREAM_MAX_CLIENTS", "5")]).err().unwrap(),
            "MILLSTREAM_MAX_CLIENTS: there is no such setting. Did you mean MILLSTREAM_MAXCLIENTS?"
        );
        let kubernetes = [
            ("MILLSTREAM_PORT", "tcp://10.0.0.1:6379"),
            ("MILLSTREAM_SERVICE_HOST", "10.0.0.1"),
            ("MILLSTREAM_PORT_6379_TCP_ADDR", "10.0.0.1"),
        ];
        assert_eq!(environment(&kubernetes).unwrap().number(Id::Port), 6379);
    }

    #[test]
    fn what_this_version_cannot_do_is_not_accepted() {
        let refused = toml("maxmemory = 1000").err().unwrap();
        assert!(refused.starts_with("m.toml: maxmemory 1000: "), "{refused}");
        assert!(toml("maxmemory = 0").is_ok());
    }
}
