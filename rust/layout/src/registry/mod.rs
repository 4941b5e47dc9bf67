//! The registry: one readable entry per architecture, each with its source, in the forms that
//! engines use. The built-in entries are the TOML files in `data/`; a user's file has the same form.

mod build;
mod error;
mod records;
mod schema;

use std::sync::OnceLock;

use toml::Spanned;

pub use error::RegistryError;
pub use records::RecordFormat;

use crate::Layout;
use error::Source;
use records::Records;

/// The built-in files: name and text.
const BUILT_IN: &[(&str, &str)] = &[
    ("records.toml", include_str!("../../data/records.toml")),
    ("forms.toml", include_str!("../../data/forms.toml")),
    ("deepseek.toml", include_str!("../../data/deepseek.toml")),
    ("deepseek_v4.toml", include_str!("../../data/deepseek_v4.toml")),
    ("kimi.toml", include_str!("../../data/kimi.toml")),
    ("glm.toml", include_str!("../../data/glm.toml")),
    ("llama.toml", include_str!("../../data/llama.toml")),
    ("qwen.toml", include_str!("../../data/qwen.toml")),
    ("gemma.toml", include_str!("../../data/gemma.toml")),
    ("gpt_oss.toml", include_str!("../../data/gpt_oss.toml")),
    ("mistral.toml", include_str!("../../data/mistral.toml")),
    ("minimax.toml", include_str!("../../data/minimax.toml")),
    ("rivals.toml", include_str!("../../data/rivals.toml")),
];

/// Weights of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// Parameters in billions.
    pub billions: f64,
    /// Bytes per parameter as served.
    pub bytes_per_parameter: f64,
    /// Where the numbers are from.
    pub source: String,
}

/// One architecture.
#[derive(Debug, Clone)]
pub struct Architecture {
    /// Name.
    pub name: String,
    /// Other names of the same cache.
    pub aliases: Vec<String>,
    /// Name as people write it.
    pub title: String,
    /// Family.
    pub family: String,
    /// Day of release, year first; empty when not known.
    pub released: String,
    /// Attention mechanism in a few words.
    pub mechanism: String,
    /// The predecessor that its factors are compared with.
    pub after: Option<String>,
    /// Layers of the model, draft layers left out.
    pub layers: u32,
    /// Where the numbers are from.
    pub source: String,
    /// H, M or L: how sure they are.
    pub confidence: String,
    /// Weights, where known.
    pub weights: Option<Weights>,
    /// Not a model that was released: the paper's "what if".
    pub counterfactual: bool,
    /// The form that stands for it in tables.
    pub default_form: String,
    forms: Vec<BuiltForm>,
}

#[derive(Debug, Clone)]
struct BuiltForm {
    name: String,
    source: String,
    layout: Layout,
    with_draft: Layout,
}

impl Architecture {
    /// Names of its forms and their sources, in the order written.
    pub fn forms(&self) -> impl Iterator<Item = (&str, &str)> {
        self.forms.iter().map(|form| (form.name.as_str(), form.source.as_str()))
    }

    /// Its layout in a form (`None` = the default one), with or without the draft layers' groups.
    ///
    /// # Errors
    ///
    /// There is no such form; the error names those that there are.
    pub fn layout(&self, form: Option<&str>, draft: bool) -> Result<Layout, RegistryError> {
        let wanted = form.unwrap_or(&self.default_form);
        let found = self.forms.iter().find(|form| form.name == wanted).ok_or_else(|| {
            let names: Vec<_> = self.forms().map(|(name, _)| name).collect();
            RegistryError {
                origin: "registry".into(),
                line: 0,
                what: format!("{} has no form {wanted:?}", self.name),
                mend: format!("use one of {}", names.join(", ")),
            }
        })?;
        Ok(if draft { &found.with_draft } else { &found.layout }.clone())
    }
}

/// Architectures by name, and the records and form sets that they use.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    architectures: Vec<Architecture>,
    records: Records,
    form_sets: Vec<schema::FormSet>,
}

impl Registry {
    /// The built-in entries.
    ///
    /// # Panics
    ///
    /// When a built-in file does not read, which a test excludes.
    pub fn built_in() -> &'static Self {
        static REGISTRY: OnceLock<Registry> = OnceLock::new();
        REGISTRY.get_or_init(|| {
            let mut registry = Self::default();
            for (origin, text) in BUILT_IN {
                if let Err(error) = registry.add(origin, text) {
                    panic!("built-in registry: {error}");
                }
            }
            registry
        })
    }

    /// The built-in entries and those of a user's file. An entry of the same name replaces the
    /// built-in one.
    ///
    /// # Errors
    ///
    /// The line of the mistake, what it is, and the mend.
    pub fn with_file(origin: &str, text: &str) -> Result<Self, RegistryError> {
        let mut registry = Self::built_in().clone();
        registry.add(origin, text)?;
        Ok(registry)
    }

    /// All architectures, in the order of the files.
    pub fn architectures(&self) -> &[Architecture] {
        &self.architectures
    }

    /// All named record formats, by name.
    pub fn records(&self) -> impl Iterator<Item = &RecordFormat> {
        self.records.iter()
    }

    /// The architecture of this name or alias; case and a leading owner ("deepseek-ai/") are
    /// ignored.
    ///
    /// # Errors
    ///
    /// There is none; the error names some that are near.
    pub fn find(&self, name: &str) -> Result<&Architecture, RegistryError> {
        let wanted = plain(name);
        let is = |known: &String| plain(known) == wanted;
        let found = self.architectures.iter().find(|a| is(&a.name) || a.aliases.iter().any(is));
        found.ok_or_else(|| {
            let mut names: Vec<_> = self.architectures.iter().map(|a| a.name.as_str()).collect();
            names.sort_by_key(|known| std::cmp::Reverse(shared(&plain(known), &wanted)));
            names.truncate(5);
            RegistryError {
                origin: "registry".into(),
                line: 0,
                what: format!("no architecture is called {name:?}"),
                mend: format!(
                    "use a name like {}; all are listed by `kvstore layouts`",
                    names.join(", ")
                ),
            }
        })
    }

    fn add(&mut self, origin: &str, text: &str) -> Result<(), RegistryError> {
        let source = Source { origin, text };
        let file: schema::File = toml::from_str(text).map_err(|error| syntax(source, &error))?;
        for record in &file.record {
            if record.get_ref().planes.is_empty() || record.get_ref().planes.contains(&0) {
                let name = record.get_ref().name.get_ref();
                let what = format!("record {name:?}: planes = {:?}", record.get_ref().planes);
                return Err(source.on(
                    &record.get_ref().name,
                    what,
                    "give 1 byte or more per plane",
                ));
            }
            self.records.add(record.get_ref());
        }
        self.form_sets.extend(file.form_set);
        for arch in &file.arch {
            let built = self.architecture(source, arch.get_ref())?;
            self.architectures.retain(|known| known.name != built.name);
            self.architectures.push(built);
        }
        Ok(())
    }

    fn architecture(
        &self,
        source: Source<'_>,
        arch: &schema::Arch,
    ) -> Result<Architecture, RegistryError> {
        let mut forms: Vec<BuiltForm> = Vec::new();
        for (form, anchor) in self.forms_of(source, arch)? {
            let build = |draft| build::layout(source, &self.records, arch, &form, anchor, draft);
            forms.push(BuiltForm {
                name: form.name.get_ref().clone(),
                source: form.source.clone(),
                layout: build(false)?,
                with_draft: build(true)?,
            });
        }
        let first = forms.first().map(|form| form.name.clone()).unwrap_or_default();
        let default_form = arch.default_form.as_ref().map_or(&first, Spanned::get_ref).clone();
        if !forms.iter().any(|form| form.name == default_form) {
            let names: Vec<_> = forms.iter().map(|form| form.name.as_str()).collect();
            return Err(source.on(
                arch.default_form.as_ref().unwrap_or(&arch.name),
                format!("default_form = {default_form:?} is none of its forms"),
                format!("use one of {:?}, or add [[arch.form]] or forms", names.join(", ")),
            ));
        }
        let name = arch.name.get_ref().clone();
        Ok(Architecture {
            title: arch.title.clone().unwrap_or_else(|| name.clone()),
            name,
            aliases: arch.aliases.clone(),
            family: arch.family.clone(),
            released: arch.released.clone().unwrap_or_default(),
            mechanism: arch.mechanism.clone(),
            after: arch.after.clone(),
            layers: *arch.layers.get_ref(),
            source: arch.source.clone(),
            confidence: arch.confidence.clone(),
            weights: arch.weights.as_ref().map(|w| Weights {
                billions: w.billions,
                bytes_per_parameter: w.bytes_per_parameter,
                source: w.source.clone(),
            }),
            counterfactual: arch.counterfactual,
            default_form,
            forms,
        })
    }

    /// The forms of an architecture: its own, then those of its sets that its own do not name, with
    /// the place at which the architecture names the set.
    fn forms_of(
        &self,
        source: Source<'_>,
        arch: &schema::Arch,
    ) -> Result<Vec<(schema::Form, Option<usize>)>, RegistryError> {
        let mut forms: Vec<_> = arch.form.iter().map(|form| (form.clone(), None)).collect();
        for wanted in &arch.forms {
            let set = self.form_sets.iter().find(|set| set.name == *wanted.get_ref());
            let set = set.ok_or_else(|| {
                let names: Vec<_> = self.form_sets.iter().map(|set| set.name.as_str()).collect();
                source.on(
                    wanted,
                    format!("form set {:?} is unknown", wanted.get_ref()),
                    format!("use one of {}", names.join(", ")),
                )
            })?;
            for form in &set.form {
                if !forms.iter().any(|(own, _)| own.name.get_ref() == form.name.get_ref()) {
                    forms.push((form.clone(), Some(wanted.span().start)));
                }
            }
        }
        Ok(forms)
    }
}

/// A name without its owner, in lower case.
fn plain(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).to_lowercase()
}

fn shared(a: &str, b: &str) -> usize {
    let words =
        |text: &str| -> Vec<String> { text.split(['-', '.', '_']).map(str::to_owned).collect() };
    let (a, b) = (words(a), words(b));
    a.iter().filter(|word| b.contains(word)).count()
}

fn syntax(source: Source<'_>, error: &toml::de::Error) -> RegistryError {
    let message = error.message();
    let mend = if message.starts_with("unknown field") {
        "spell it as one of those, or remove it"
    } else if message.starts_with("missing field") {
        "add it"
    } else if message.starts_with("invalid type") {
        "give a value of the type that is expected"
    } else {
        "correct this line"
    };
    let start = error.span().map_or(0, |span| span.start);
    source.at(start, message.replace('\n', " "), mend)
}

#[cfg(test)]
mod tests;
