//! Loads the server's settings: flags override environment variables, variables override the file, and the file
//! overrides the defaults.

use std::path::{Path, PathBuf};

use millstream_server::Settings;
use millstream_server::settings::{Id, SETTINGS, Setting, ValueType};

use crate::ops::Failure;
use crate::ops::connection::TOOL_VARIABLES;

const CONFIG_ENV_NAME: &str = "MILLSTREAM_CONFIG";
const ENV_PREFIX: &str = "MILLSTREAM_";

/// Loads the settings: applies the file, then the environment, then the flags.
pub(crate) fn load(config_path: Option<&Path>, flags: &[(Id, String)]) -> Result<Settings, Failure> {
    let settings = Settings::new();
    let config_path = config_path.map(Path::to_owned);
    if let Some(path) = config_path.or_else(|| std::env::var_os(CONFIG_ENV_NAME).map(PathBuf::from)) {
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::Other(format!("cannot read configuration file {}: {error}", path.display()))
        })?;
        apply_toml(&settings, &path, &text)?;
    }
    apply_environment(&settings, std::env::vars())?;
    for (id, text) in flags {
        set(&settings, *id, &format!("--{} ", id.setting().name), text)?;
    }
    Ok(settings)
}

fn apply_toml(settings: &Settings, path: &Path, text: &str) -> Result<(), Failure> {
    let path = path.display();
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        Failure::Usage(format!("configuration file {path} is not valid TOML:\n{error}"))
    })?;
    for (name, value) in &table {
        let Some(setting) = Setting::find(name) else {
            return Err(unknown(&format!("{path}: {name}"), Setting::suggest(name)));
        };
        // TOML has octal numbers of its own: 0o770 would arrive here as 504.
        let is_ambiguous = setting.value_type == ValueType::Permissions && value.is_integer();
        let text = toml_text(value).filter(|_| !is_ambiguous).ok_or_else(|| {
            let expected = match is_ambiguous {
                true => "an octal number in quotes, such as \"770\"",
                false => "a string, an integer, true or false, or an array of strings",
            };
            Failure::Usage(format!("{path}: invalid value for {name}: expected {expected}"))
        })?;
        set(settings, setting.id, &format!("{path}: {} ", setting.name), &text)?;
    }
    Ok(())
}

/// Converts a TOML value to the text that the flag would take. `None` if no setting accepts a value of this type.
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

/// Applies environment variables. Rejects a variable whose name looks like a misspelled setting.
///
/// Ignores the variables of the tools, all other variables with this prefix, and every value that begins with `tcp://`,
/// because other software sets such variables. For a service called `millstream`, Kubernetes sets
/// `MILLSTREAM_SERVICE_HOST` and `MILLSTREAM_PORT=tcp://…`.
fn apply_environment(
    settings: &Settings,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<(), Failure> {
    for (variable, text) in variables {
        let Some(rest) = variable.strip_prefix(ENV_PREFIX) else { continue };
        let is_other = variable == CONFIG_ENV_NAME || TOOL_VARIABLES.contains(&&*variable);
        if is_other || text.starts_with("tcp://") {
            continue;
        }
        let name = rest.replace('_', "-").to_ascii_lowercase();
        if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) {
            set(settings, setting.id, &format!("{}=", setting.env_name()), &text)?;
        } else if let Some(suggested) = Setting::suggest(&name).and_then(Setting::find) {
            return Err(unknown(&variable, Some(&suggested.env_name())));
        }
    }
    Ok(())
}

/// Returns the error for an unknown setting. `source` is the file and the key, or the variable.
fn unknown(source: &str, suggestion: Option<&str>) -> Failure {
    let hint = match suggestion {
        Some(suggestion) => format!("Did you mean {suggestion}?"),
        None => "`millstream serve --help` lists all settings.".to_owned(),
    };
    Failure::Usage(format!("{source}: unknown setting. {hint}"))
}

/// Sets a setting. `prefix` is the text that precedes the value in the error, such as `--port ` or `MILLSTREAM_PORT=`.
fn set(settings: &Settings, id: Id, prefix: &str, text: &str) -> Result<(), Failure> {
    settings.set(id, text).map_err(|why| Failure::Usage(format!("{prefix}{text}: {why}")))
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
    fn a_file_accepts_toml_types_and_strings() {
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
    fn file_errors_name_the_file_and_the_key_and_suggest_a_fix() {
        let error = |text: &str| toml(text).err().unwrap();
        assert_eq!(error("prot = 1"), "m.toml: prot: unknown setting. Did you mean port?");
        assert_eq!(
            error("port = 70000"),
            "m.toml: port 70000: argument must be between 0 and 65535 inclusive"
        );
        assert_eq!(
            error("port = 1.5"),
            "m.toml: invalid value for port: expected a string, an integer, true or false, or an array of strings"
        );
        for octal in ["770", "0o770"] {
            assert_eq!(
                error(&format!("unixsocketperm = {octal}")),
                "m.toml: invalid value for unixsocketperm: expected an octal number in quotes, such as \"770\""
            );
        }
        assert!(error("port =").starts_with("configuration file m.toml is not valid TOML:\n"));
    }

    #[test]
    fn environment_variables_use_upper_case_names() {
        let settings = environment(&[("MILLSTREAM_EXACT_LAG", "no"), ("MILLSTREAM_PORT", "7001")]).unwrap();
        assert!(!settings.is_on(Id::ExactLag));
        assert_eq!(settings.number(Id::Port), 7001);
    }

    #[test]
    fn misspelled_variables_are_rejected_and_kubernetes_variables_are_ignored() {
        assert_eq!(
            environment(&[("MILLSTREAM_MAX_CLIENTS", "5")]).err().unwrap(),
            "MILLSTREAM_MAX_CLIENTS: unknown setting. Did you mean MILLSTREAM_MAXCLIENTS?"
        );
        let kubernetes = [
            ("MILLSTREAM_PORT", "tcp://10.0.0.1:6379"),
            ("MILLSTREAM_SERVICE_HOST", "10.0.0.1"),
            ("MILLSTREAM_PORT_6379_TCP_ADDR", "10.0.0.1"),
        ];
        assert_eq!(environment(&kubernetes).unwrap().number(Id::Port), 6379);
        assert!(environment(&TOOL_VARIABLES.map(|name| (name, "x"))).is_ok());
    }

    #[test]
    fn unsupported_values_are_rejected() {
        let refused = toml("maxmemory-policy = 'allkeys-lru'").err().unwrap();
        assert!(refused.starts_with("m.toml: maxmemory-policy allkeys-lru: "), "{refused}");
        assert!(toml("maxmemory-policy = 'noeviction'").is_ok());
    }
}
