//! Where settings come from: a flag wins over the environment, the environment over the file, the file over
//! what the server does by itself.

use std::path::{Path, PathBuf};

use millstream_server::Settings;
use millstream_server::settings::{Id, SETTINGS, Setting};

use crate::ops::Failure;

const CONFIG_ENV_NAME: &str = "MILLSTREAM_CONFIG";
const ENV_PREFIX: &str = "MILLSTREAM_";

/// Reads all layers, the weakest first, so that each overrides what came before.
pub(crate) fn load(config_path: Option<PathBuf>, flags: &[(Id, String)]) -> Result<Settings, Failure> {
    let settings = Settings::new();
    if let Some(path) = config_path.or_else(|| std::env::var_os(CONFIG_ENV_NAME).map(PathBuf::from)) {
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::Other(format!("cannot read the configuration file {}: {error}", path.display()))
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
        Failure::Usage(format!("the configuration file {path} is not valid TOML:\n{error}"))
    })?;
    for (name, value) in &table {
        let Some(setting) = Setting::find(name) else {
            return Err(unknown(&format!("{path}: {name}"), Setting::suggest(name)));
        };
        let text = toml_text(value).ok_or_else(|| {
            let shapes = "a text, a number, true or false, or a list of texts";
            Failure::Usage(format!("{path}: {name} must be {shapes}"))
        })?;
        set(settings, setting.id, &format!("{path}: {} ", setting.name), &text)?;
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
) -> Result<(), Failure> {
    for (variable, text) in variables {
        let Some(rest) = variable.strip_prefix(ENV_PREFIX) else { continue };
        if variable == CONFIG_ENV_NAME || text.starts_with("tcp://") {
            continue;
        }
        let name = rest.replace('_', "-").to_ascii_lowercase();
        if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) {
            set(settings, setting.id, &format!("{}=", setting.env_name()), &text)?;
        } else if let Some(meant) = Setting::suggest(&name).and_then(Setting::find) {
            return Err(unknown(&variable, Some(&meant.env_name())));
        }
    }
    Ok(())
}

/// The failure of a name that no setting has. `place` says where it stands.
fn unknown(place: &str, suggestion: Option<&str>) -> Failure {
    let way_out = match suggestion {
        Some(suggestion) => format!("Did you mean {suggestion}?"),
        None => "`millstream serve --help` lists them all".to_owned(),
    };
    Failure::Usage(format!("{place}: there is no such setting. {way_out}"))
}

/// Sets a setting. `place` is how the setting is written where the value comes from, up to the value.
fn set(settings: &Settings, id: Id, place: &str, text: &str) -> Result<(), Failure> {
    settings.set(id, text).map_err(|why| Failure::Usage(format!("{place}{text}: {why}")))
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
