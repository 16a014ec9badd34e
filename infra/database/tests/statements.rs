//! Every statement that stands in the sources as one text fits the migrated schema: tables, columns, types and functions.

#![expect(clippy::unwrap_used, reason = "a failure of a helper fails the test")]

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, Literal, TokenStream, TokenTree};
use signalbox_database::connect;
use signalbox_test_support::fresh_database;
use sqlx::Executor;

/// Functions of sqlx whose first argument is a statement.
const CALLS: [&str; 4] = ["query", "query_as", "query_scalar", "raw_sql"];
/// Statements with parameters whose types follow only from the values that are bound to them, by their beginnings. A type is
/// written in a new statement, such as `$1::uuid[]`.
const TYPED_BY_BINDING: [&str; 10] = [
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM read.extraction_jobs WHERE due_at IS NOT NULL LIMIT $1) open)",
    "SELECT attname::text FROM pg_attribute WHERE attrelid = format('%I.%I', $1, $2)::regclass",
    "SELECT created_at, id FROM read.transfers WHERE job_id = $1 AND (created_at, id) < (coalesce($3, $2 + interval",
    "SELECT format('ALTER TABLE %I.%I ADD CONSTRAINT %I %s', $1, $2, conname, pg_get_constraintdef(oid))",
    "SELECT newest.* FROM unnest($4) AS left_out (word)",
    "SELECT replace(pg_get_indexdef(indexrelid), format(' ON read.%I ', $2), format(' ON %I.%I ', $1, $2))",
    "SELECT requested.channel, newest.hour FROM unnest($1, $2) AS requested (channel, hour)",
    "SELECT setval(format('ops.%I', $1)::regclass, $2)",
    "SELECT stream.* FROM unnest($2) AS requested (id)",
    "WITH key AS (SELECT * FROM pg_index WHERE indrelid = format('read.%I', $1)::regclass AND indisunique",
];
/// Calls whose statement is put together at run time. The number may only fall.
const PUT_TOGETHER: usize = 72;

/// A statement, and where it stands.
#[derive(Debug)]
struct Statement {
    file: String,
    text: String,
}

#[derive(Debug, Default)]
struct Found {
    statements: Vec<Statement>,
    put_together: BTreeMap<String, usize>,
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_left_out = ["target", "tests", "node_modules", "benches", "test_support", "console"]
            .contains(&name.as_str());
        if path.is_dir() && !is_left_out && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// The tokens without modules of tests.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_test = matches!(&token, TokenTree::Group(group)
            if group.delimiter() == Delimiter::Bracket && group.stream().to_string() == "cfg (test)");
        if !is_test {
            kept.push(token);
            continue;
        }
        for skipped in tokens.by_ref() {
            let is_body =
                matches!(&skipped, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            let is_end = matches!(&skipped, TokenTree::Punct(punct) if punct.as_char() == ';');
            if is_body || is_end {
                break;
            }
        }
    }
    kept
}

/// The text of a literal, if it is one of a string.
fn text(literal: &Literal) -> Option<String> {
    let source = literal.to_string();
    if let Some(raw) = source.strip_prefix('r') {
        let raw = raw.trim_matches('#');
        return Some(raw.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    }
    let inner = source.strip_prefix('"')?.strip_suffix('"')?;
    let (mut text, mut letters) = (String::new(), inner.chars().peekable());
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next()? {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            '\n' => while letters.next_if(|letter| letter.is_whitespace()).is_some() {},
            other => text.push(other),
        }
    }
    Some(text)
}

/// `const NAME: … = "…";`, at any depth.
fn constants(tokens: &[TokenTree], found: &mut HashMap<String, String>) {
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => constants(&without_tests(group.stream()), found),
            TokenTree::Ident(word) if word == "const" || word == "static" => {
                let Some(TokenTree::Ident(name)) = tokens.get(index + 1) else { continue };
                let rest = tokens[index + 1..].iter();
                let rest: Vec<_> = rest
                    .take_while(|token| !matches!(token, TokenTree::Punct(end) if end.as_char() == ';'))
                    .collect();
                if let [.., TokenTree::Punct(equals), TokenTree::Literal(value)] = rest[..]
                    && equals.as_char() == '='
                    && let Some(value) = text(value)
                {
                    found.insert(name.to_string(), value);
                }
            }
            _ => {}
        }
    }
}

/// The arguments of a call whose name stands at `index`, over a turbofish.
fn arguments(tokens: &[TokenTree], index: usize) -> Option<TokenStream> {
    let mut depth = 0_i32;
    let mut before = ' ';
    for token in &tokens[index + 1..] {
        match token {
            TokenTree::Group(group) if depth == 0 && group.delimiter() == Delimiter::Parenthesis => {
                return Some(group.stream());
            }
            TokenTree::Punct(punct) => {
                match punct.as_char() {
                    '<' => depth += 1,
                    '>' if before != '-' => depth -= 1,
                    ':' => {}
                    _ if depth == 0 => return None,
                    _ => {}
                }
                before = punct.as_char();
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn calls(file: &str, tokens: &[TokenTree], constants: &HashMap<String, String>, found: &mut Found) {
    for (index, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            calls(file, &without_tests(group.stream()), constants, found);
        }
        let TokenTree::Ident(name) = token else { continue };
        let is_declared = index > 0 && matches!(&tokens[index - 1], TokenTree::Ident(word) if word == "fn");
        let is_method =
            index > 0 && matches!(&tokens[index - 1], TokenTree::Punct(dot) if dot.as_char() == '.');
        if is_declared || is_method || !CALLS.iter().any(|call| name == call) {
            continue;
        }
        let Some(arguments) = arguments(tokens, index) else { continue };
        let first: Vec<_> = arguments
            .into_iter()
            .take_while(|token| !matches!(token, TokenTree::Punct(comma) if comma.as_char() == ','))
            .collect();
        let statement = match &first[..] {
            [TokenTree::Literal(literal)] => text(literal),
            [.., TokenTree::Ident(name)] => constants.get(&name.to_string()).cloned(),
            _ => None,
        };
        match statement {
            Some(text) => found.statements.push(Statement { file: file.to_owned(), text }),
            None => *found.put_together.entry(file.to_owned()).or_default() += 1,
        }
    }
}

fn statements() -> Found {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    sources(&top, &mut paths);
    let mut found = Found::default();
    for path in paths {
        let source = fs::read_to_string(&path).unwrap();
        if !source.contains("sqlx") {
            continue;
        }
        let tokens = without_tests(source.parse().unwrap());
        let mut known = HashMap::new();
        constants(&tokens, &mut known);
        calls(path.strip_prefix(&top).unwrap().to_str().unwrap(), &tokens, &known, &mut found);
    }
    found
}

#[tokio::test]
async fn every_statement_fits_the_migrated_schema() {
    let found = statements();
    assert!(found.statements.len() > 300, "{} statements were found", found.statements.len());
    let put_together: usize = found.put_together.values().sum();
    let pool = connect(&fresh_database().await, 1).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let mut faults = Vec::new();
    for Statement { file, text } in &found.statements {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if TYPED_BY_BINDING.iter().any(|beginning| words.starts_with(beginning)) {
            continue;
        }
        if let Err(error) = connection.prepare(text).await {
            faults.push(format!("{file}: {error}\n    {text}"));
        }
    }
    assert!(faults.is_empty(), "{} statements do not fit:\n{}", faults.len(), faults.join("\n"));
    assert!(
        put_together <= PUT_TOGETHER,
        "{put_together} statements are put together: {:#?}",
        found.put_together
    );
}

#[test]
fn statements_are_found_in_literals_and_constants() {
    let source = r##"
        const ONE: &str = "SELECT 1";
        fn f() { sqlx::query(ONE); sqlx::query_as::<_, (i64, Vec<u8>)>("SELECT \
            2"); query_scalar(r#"SELECT "3""#); sqlx::query(&format!("SELECT {x}")); }
        #[cfg(test)]
        mod tests { fn g() { sqlx::query("SELECT 4"); } }
    "##;
    let tokens = without_tests(source.parse().unwrap());
    let (mut known, mut found) = (HashMap::new(), Found::default());
    constants(&tokens, &mut known);
    calls("a.rs", &tokens, &known, &mut found);
    let texts: Vec<_> = found.statements.iter().map(|statement| statement.text.as_str()).collect();
    assert_eq!(texts, ["SELECT 1", "SELECT 2", "SELECT \"3\""]);
    assert_eq!(found.put_together.values().sum::<usize>(), 1);
}
