//! The types that rows are read as, from the sources.

use std::collections::HashMap;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Structs and aliases that are declared in the sources, by their names. Of a name that is declared more than once, those of the
/// same file count.
#[derive(Debug, Default)]
pub struct Declared {
    structs: HashMap<(String, String), Option<Vec<Field>>>,
    aliases: HashMap<(String, String), String>,
    files: HashMap<String, Vec<String>>,
}

/// A field of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub name: String,
    pub kind: String,
    /// The attribute `row`.
    pub source: Option<String>,
}

fn is_punct(token: Option<&TokenTree>, expected: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == expected)
}

fn is_word(token: Option<&TokenTree>, expected: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(word)) if word == expected)
}

/// The tokens without spaces, so that types compare as texts.
fn written(tokens: &[TokenTree]) -> String {
    tokens.iter().cloned().collect::<TokenStream>().to_string().replace(' ', "")
}

/// `tokens`, divided at commas outside of `<…>`.
fn divided(tokens: Vec<TokenTree>) -> Vec<Vec<TokenTree>> {
    let (mut parts, mut depth) = (vec![Vec::new()], 0_i32);
    for token in tokens {
        if let TokenTree::Punct(punct) = &token {
            depth += match punct.as_char() {
                '<' => 1,
                '>' => -1,
                _ => 0,
            };
            if punct.as_char() == ',' && depth == 0 {
                parts.push(Vec::new());
                continue;
            }
        }
        parts.last_mut().unwrap().push(token);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The parts of a tuple's type.
pub fn of_tuple(kind: &str) -> Option<Vec<String>> {
    let inner = kind.strip_prefix('(')?.strip_suffix(')')?;
    let tokens: TokenStream = inner.parse().ok()?;
    Some(divided(tokens.into_iter().collect()).iter().map(|part| written(part)).collect())
}

/// The only parameter of the generic type `name`, such as `Vec<T>`.
pub fn within<'k>(kind: &'k str, name: &str) -> Option<&'k str> {
    kind.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>')
}

fn fields(body: &Group) -> Vec<Field> {
    let field = |part: Vec<TokenTree>| {
        let colon = part.iter().position(|token| is_punct(Some(token), ':'))?;
        let attributes = part[..colon].iter().map(ToString::to_string);
        let mut sources = attributes.filter_map(|text| {
            Some(text.strip_prefix("[row")?.trim().strip_prefix('(')?.split(')').next()?.trim().to_owned())
        });
        Some(Field {
            name: part[colon - 1].to_string().trim_start_matches("r#").to_owned(),
            kind: written(&part[colon + 1..]),
            source: sources.next(),
        })
    };
    divided(body.stream().into_iter().collect()).into_iter().filter_map(field).collect()
}

/// Whether the item that follows `before` derives `FromRow`.
fn derives_rows(before: &[TokenTree]) -> bool {
    let of_item = before.iter().rev().take_while(|token| {
        !is_punct(Some(token), ';')
            && !matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    });
    of_item.map(ToString::to_string).any(|text| text.starts_with("[derive") && text.contains("FromRow"))
}

impl Declared {
    /// Takes in the declarations of `file`, at any depth.
    pub fn add(&mut self, file: &str, tokens: &[TokenTree]) {
        for (index, token) in tokens.iter().enumerate() {
            if let TokenTree::Group(group) = token {
                self.add(file, &group.stream().into_iter().collect::<Vec<_>>());
            }
            let name = tokens.get(index + 1).map(ToString::to_string).unwrap_or_default();
            let key = (file.to_owned(), name.clone());
            if is_word(Some(token), "struct")
                && let Some(TokenTree::Group(body)) = tokens.get(index + 2)
                && body.delimiter() == Delimiter::Brace
            {
                let fields = derives_rows(&tokens[..index]).then(|| fields(body));
                self.structs.insert(key, fields);
                self.files.entry(name).or_default().push(file.to_owned());
            } else if is_word(Some(token), "type") && is_punct(tokens.get(index + 2), '=') {
                let end = tokens[index..].iter().position(|token| is_punct(Some(token), ';')).unwrap_or(3);
                self.aliases.insert(key, written(&tokens[index + 3..index + end]));
            }
        }
    }

    /// The type that `kind` is another name of in `file`.
    pub fn alias(&self, file: &str, kind: &str) -> Option<&str> {
        self.aliases.get(&(file.to_owned(), kind.to_owned())).map(String::as_str)
    }

    /// The fields of the struct `name`, as `file` sees it, if it derives `FromRow`.
    pub fn fields(&self, file: &str, name: &str) -> Option<(&str, &[Field])> {
        let files = self.files.get(name)?;
        let own = files.iter().find(|known| *known == file);
        let found = own.or_else(|| files.first().filter(|_| files.len() == 1))?;
        let fields = self.structs.get(&(found.clone(), name.to_owned()))?.as_ref()?;
        Some((found, fields))
    }
}

/// The type of the result of the function whose body starts at `index`, if it is one.
pub fn result_type(tokens: &[TokenTree], index: usize) -> Option<String> {
    let before = &tokens[..index];
    let start = before.iter().rposition(|token| is_word(Some(token), "fn"))?;
    if before[start..].iter().any(|token| {
        matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
            || is_punct(Some(token), ';')
    }) {
        return None;
    }
    let signature = &before[start..];
    let arrow = (0..signature.len())
        .rev()
        .find(|at| is_punct(signature.get(*at), '-') && is_punct(signature.get(at + 1), '>'))?;
    let kind = &signature[arrow + 2..];
    let end = kind.iter().position(|token| is_word(Some(token), "where")).unwrap_or(kind.len());
    Some(written(&kind[..end]))
}

/// The row of the call at `index`: by the type of a variable, or that of the function's result, whose body `tokens` is.
pub fn row(tokens: &[TokenTree], index: usize, result: Option<&str>) -> Option<String> {
    let mut start = index;
    while start >= 3 && is_punct(tokens.get(start - 1), ':') && is_punct(tokens.get(start - 2), ':') {
        start -= 3;
    }
    let chain = Chain::after(tokens, index)?;
    let kind = if start > 0 && is_punct(tokens.get(start - 1), '=') {
        let is_let = tokens[..start].iter().rposition(|token| is_word(Some(token), "let"))?;
        let binding = &tokens[is_let..start - 1];
        if !chain.is_tried || binding.iter().any(|token| is_punct(Some(token), ';')) {
            return None;
        }
        let colon = binding.iter().position(|token| is_punct(Some(token), ':'))?;
        written(&binding[colon + 1..])
    } else {
        let is_statement = match start.checked_sub(1).map(|before| &tokens[before]) {
            None => true,
            Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
            Some(before) => is_punct(Some(before), ';'),
        };
        if !is_statement || chain.is_tried || chain.end != tokens.len() {
            return None;
        }
        let inner = result?.strip_prefix("Result<")?.strip_suffix('>')?;
        let inner: TokenStream = inner.parse().ok()?;
        written(divided(inner.into_iter().collect()).first()?)
    };
    match chain.fetch.as_str() {
        "fetch_all" => within(&kind, "Vec").map(str::to_owned),
        "fetch_optional" => within(&kind, "Option").map(str::to_owned),
        _ => Some(kind),
    }
}

/// The methods after a call that makes a statement, up to `.await`.
struct Chain {
    fetch: String,
    /// Whether `?` follows.
    is_tried: bool,
    /// The token after it.
    end: usize,
}

impl Chain {
    fn after(tokens: &[TokenTree], index: usize) -> Option<Self> {
        let mut at = index;
        let mut fetch = None;
        while !is_word(tokens.get(at), "await") {
            if let Some(TokenTree::Ident(word)) = tokens.get(at)
                && word.to_string().starts_with("fetch")
            {
                fetch = Some(word.to_string());
            }
            if at >= tokens.len() || is_punct(tokens.get(at), ';') {
                return None;
            }
            at += 1;
        }
        let is_tried = is_punct(tokens.get(at + 1), '?');
        let end = at + 1 + usize::from(is_tried);
        // Another method may change the type.
        if is_punct(tokens.get(end), '.') || is_punct(tokens.get(end), '?') {
            return None;
        }
        Some(Self { fetch: fetch?, is_tried, end })
    }
}

/// Whether a column of PostgreSQL's type `column` can be read as `kind`; `None` for a type that is not known here.
pub fn fits(kind: &str, column: &str) -> Option<bool> {
    if let Some(inner) = within(kind, "Option") {
        return fits(inner, column);
    }
    if kind == "Vec<u8>" {
        return Some(column == "BYTEA");
    }
    if let Some(inner) = within(kind, "Vec") {
        return match column.strip_suffix("[]") {
            Some(element) => fits(inner, element),
            None => Some(false),
        };
    }
    let last = kind.split('<').next().unwrap_or(kind).rsplit("::").next().unwrap_or(kind);
    let fitting: &[&str] = match last {
        "bool" => &["BOOL"],
        "i16" => &["INT2"],
        "i32" => &["INT4"],
        "i64" => &["INT8"],
        "f32" => &["FLOAT4"],
        "f64" => &["FLOAT8"],
        "String" | "Word" => &["TEXT", "VARCHAR", "NAME"],
        "Uuid" => &["UUID"],
        "DateTime" => &["TIMESTAMPTZ"],
        "NaiveDate" => &["DATE"],
        "Json" | "Value" => &["JSONB", "JSON"],
        id if id.ends_with("Id") => &["UUID"],
        _ => return None,
    };
    Some(fitting.contains(&column))
}
