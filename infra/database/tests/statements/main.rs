//! Every statement that stands in the sources as one text fits the migrated schema: tables, columns, types and functions, and its
//! columns fit the type that its rows are read as, where the sources name it beside the statement.

#![expect(clippy::unwrap_used, reason = "a failure of a helper fails the test")]

mod rows;

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, Literal, TokenStream, TokenTree};
use signalbox_database::connect;
use signalbox_test_support::fresh_database;
use sqlx::{Column, Executor, TypeInfo, postgres::PgColumn};

use rows::{Declared, Field, fits, of_tuple, result_type, row, within};

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
/// Columns that the schema allows to be null, and that are not in the statements with these beginnings: by their conditions, or
/// because they are set there.
const NOT_NULL_HERE: [(&str, &str); 8] = [
    ("SELECT a.id, a.session, p.last_seen IS NOT NULL", "session"),
    ("SELECT aggregate_type, aggregate_id, min(position) FROM read.poisonous_events", "aggregate_id"),
    ("SELECT aggregate_type, aggregate_id, min(position) FROM read.poisonous_events", "aggregate_type"),
    ("SELECT id, away_since FROM read.agents WHERE away_since <= $1", "away_since"),
    ("SELECT n.contact_id AS id, k.name, k.quiet_hours", "id"),
    ("SELECT name FROM pg_settings WHERE name IN", "name"),
    ("SELECT number, retention_days FROM read.channels WHERE", "retention_days"),
    ("UPDATE ops.idempotent_requests SET sealed_secret = coalesce(sealed_secret, $4)", "sealed_secret"),
];
/// Calls whose statement is put together at run time. The number may only fall.
const PUT_TOGETHER: usize = 72;
/// Statements whose rows are compared with their columns. The number may only rise.
const COMPARED: usize = 210;

/// A statement, and where it stands.
#[derive(Debug)]
struct Statement {
    file: String,
    text: String,
    /// The function of sqlx that makes it.
    call: String,
    /// The type of its rows, if it is known.
    row: Option<String>,
}

#[derive(Debug, Default)]
struct Found {
    statements: Vec<Statement>,
    put_together: BTreeMap<String, usize>,
    declared: Declared,
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

/// Finds the calls within `tokens`, which are the body of a function with the type `result`, if it is one.
fn calls(
    file: &str,
    tokens: &[TokenTree],
    result: Option<&str>,
    constants: &HashMap<String, String>,
    found: &mut Found,
) {
    for (index, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            let is_body = group.delimiter() == Delimiter::Brace;
            let result = if is_body { result_type(tokens, index) } else { None };
            calls(file, &without_tests(group.stream()), result.as_deref(), constants, found);
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
            Some(text) => found.statements.push(Statement {
                file: file.to_owned(),
                text,
                call: name.to_string(),
                row: row(tokens, index, result),
            }),
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
        let file = path.strip_prefix(&top).unwrap().to_str().unwrap();
        calls(file, &tokens, None, &known, &mut found);
        found.declared.add(file, &tokens);
    }
    found
}

/// Whether [`NOT_NULL_HERE`] has this column of the statement.
fn is_not_null(words: &str, column: &str) -> bool {
    NOT_NULL_HERE.iter().any(|(beginning, name)| words.starts_with(beginning) && *name == column)
}

/// A column of a statement's result.
#[derive(Debug)]
struct Described {
    name: String,
    kind: String,
    may_be_null: bool,
}

impl Described {
    /// A sentence if a value cannot be read as `kind`.
    fn misfit(&self, kind: &str) -> Option<String> {
        if fits(kind, &self.kind) == Some(false) {
            return Some(format!("column {} is {} and is read as {kind}", self.name, self.kind));
        }
        let is_fault = self.may_be_null && within(kind, "Option").is_none();
        is_fault.then(|| format!("column {} may be null and is read as {kind}", self.name))
    }
}

/// A sentence for each value of `row` that cannot be read from `columns`; `None` if its type is not known.
fn misfits(
    declared: &Declared,
    file: &str,
    row: &str,
    is_scalar: bool,
    columns: &[Described],
) -> Option<Vec<String>> {
    let row = declared.alias(file, row).unwrap_or(row);
    let kinds = if is_scalar { Some(vec![row.to_owned()]) } else { of_tuple(row) };
    let Some(kinds) = kinds else { return misfits_of_struct(declared, file, row, columns) };
    let misfit = |(at, kind): (usize, &String)| match columns.get(at) {
        Some(column) => column.misfit(kind),
        None => Some(format!("there is no column {at}, which is read as {kind}")),
    };
    Some(kinds.iter().enumerate().filter_map(misfit).collect())
}

fn misfits_of_struct(
    declared: &Declared,
    file: &str,
    name: &str,
    columns: &[Described],
) -> Option<Vec<String>> {
    let (file, fields) = declared.fields(file, name)?;
    let mut misfits = Vec::new();
    for Field { name, kind, source } in fields {
        let column = columns.iter().find(|column| column.name == *name);
        let kind = match source.as_deref() {
            Some("flatten") => {
                misfits.extend(misfits_of_struct(declared, file, kind, columns).into_iter().flatten());
                continue;
            }
            Some("default") if column.is_none() => continue,
            Some("json") => "Json",
            Some("json_or_null") => "Option<Json>",
            _ => kind,
        };
        match column {
            Some(column) => misfits.extend(column.misfit(kind)),
            None => misfits.push(format!("there is no column {name}, which is read as {kind}")),
        }
    }
    Some(misfits)
}

#[tokio::test]
async fn every_statement_fits_the_migrated_schema() {
    let found = statements();
    assert!(found.statements.len() > 300, "{} statements were found", found.statements.len());
    let put_together: usize = found.put_together.values().sum();
    let pool = connect(&fresh_database().await, 1).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let mut faults = Vec::new();
    let mut compared = 0;
    for Statement { file, text, call, row } in &found.statements {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if TYPED_BY_BINDING.iter().any(|beginning| words.starts_with(beginning)) {
            continue;
        }
        let columns: Vec<_> = match connection.describe(text).await {
            Ok(described) => {
                let column = |(at, column): (usize, &PgColumn)| Described {
                    name: column.name().to_owned(),
                    kind: column.type_info().name().to_owned(),
                    may_be_null: described.nullable(at) == Some(true) && !is_not_null(&words, column.name()),
                };
                described.columns().iter().enumerate().map(column).collect()
            }
            Err(error) => {
                faults.push(format!("{file}: {error}\n    {text}"));
                continue;
            }
        };
        if let Some(row) = row {
            let misfits = misfits(&found.declared, file, row, call == "query_scalar", &columns);
            compared += usize::from(misfits.is_some());
            let misfits = misfits.into_iter().flatten();
            faults.extend(misfits.map(|misfit| format!("{file}: {misfit}\n    {text}")));
        }
    }
    assert!(compared >= COMPARED, "the rows of {compared} statements were compared");
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
    calls("a.rs", &tokens, None, &known, &mut found);
    let texts: Vec<_> = found.statements.iter().map(|statement| statement.text.as_str()).collect();
    assert_eq!(texts, ["SELECT 1", "SELECT 2", "SELECT \"3\""]);
    assert_eq!(found.put_together.values().sum::<usize>(), 1);
}

#[test]
fn the_type_of_a_row_is_that_of_a_variable_or_of_the_result() {
    let source = r##"
        type Held = (i64, String);
        #[derive(Debug, FromRow)] struct Row { #[row(flatten)] base: Base, pub r#type: Option<Word<A, B>>, }
        async fn f(pool: &PgPool) -> Result<Vec<Held>, sqlx::Error> {
            let one: Option<(Uuid, i32)> = sqlx::query_as("1").bind(2).fetch_optional(pool).await?;
            let two: i64 = sqlx::query_scalar("2").fetch_one(pool).await?.len();
            let three = query_scalar("3");
            if x { return sqlx::query_as("4").fetch_all(pool).await; }
            sqlx::query_as("5").fetch_all(pool).await
        }
    "##;
    let tokens = without_tests(source.parse().unwrap());
    let mut found = Found::default();
    calls("a.rs", &tokens, None, &HashMap::new(), &mut found);
    found.declared.add("a.rs", &tokens);
    let rows: Vec<_> = found.statements.iter().map(|statement| statement.row.as_deref()).collect();
    assert_eq!(rows, [Some("(Uuid,i32)"), None, None, None, Some("Held")]);
    assert_eq!(found.declared.alias("a.rs", "Held"), Some("(i64,String)"));
    let of = |row: &str, columns: &[(&str, &str, bool)]| {
        let column = |(name, kind, may_be_null): &(&str, &str, bool)| Described {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            may_be_null: *may_be_null,
        };
        let columns: Vec<_> = columns.iter().map(column).collect();
        misfits(&found.declared, "a.rs", row, false, &columns).map(|misfits| misfits.len())
    };
    assert_eq!(of("Held", &[("a", "INT8", false), ("b", "TEXT", false)]), Some(0));
    assert_eq!(of("Held", &[("a", "INT8", true), ("b", "TEXT", false)]), Some(1), "it may be null");
    assert_eq!(of("Held", &[("a", "INT4", false)]), Some(2), "one has another type, and one is missing");
    assert_eq!(of("Row", &[("type", "TEXT", true)]), Some(0));
    assert_eq!(of("Row", &[("type", "INT4", true)]), Some(1));
    assert_eq!(of("Row", &[]), Some(1));
    assert_eq!(of("Unknown", &[]), None);
    assert_eq!(fits("Vec<Option<DateTime<Utc>>>", "TIMESTAMPTZ[]"), Some(true));
    assert_eq!((fits("Vec<u8>", "TEXT"), fits("Shape", "TEXT")), (Some(false), None));
}
