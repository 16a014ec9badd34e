//! `signalbox extract`: documents become text, on this machine and without any server.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use signalbox_config::Config;
use signalbox_documents::{Documents, Extraction, OcrEngine, Options, OutputFormat, Share, Source, language};
use tokio::task::JoinSet;

/// Limit of open documents; more would only wait for a parser.
const OPEN: usize = 32;
/// How long a file may wait for a parser, and how long that may work on it.
const WAIT_SECONDS: u64 = 7 * 86_400;
const WORK_SECONDS: u64 = 4 * 3600;

/// Which documents, and how they are written.
#[derive(Debug, Args)]
pub(crate) struct ExtractArgs {
    /// A document; may be repeated.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How the text is written.
    #[arg(short, long, value_enum, default_value = "markdown")]
    format: Format,
    /// Language of the text, ISO 639: deu, eng, fra, …
    #[arg(short, long, default_value = "deu")]
    language: String,
    /// Folder to write to, one file per document; standard output if absent.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Leave text in pictures alone.
    #[arg(long)]
    no_ocr: bool,
    /// Begin markdown with title, author and number of pages.
    #[arg(long)]
    front_matter: bool,
}

/// How the text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// With headings, lists and tables.
    Markdown,
    /// With blocks and pages.
    Json,
    /// Words alone.
    Plaintext,
}

/// Extracts all files; the exit code is 0 when all gave their text, 1 when one did not.
pub(crate) async fn run(config: &Config, mut args: ExtractArgs) -> anyhow::Result<ExitCode> {
    let options = options(&args)?;
    if let Some(folder) = &args.output {
        let mut named = BTreeSet::new();
        // One that is missing is reported when its turn is there.
        args.files.retain(|path| named.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
        check_targets(&args, folder)?;
        fs::create_dir_all(folder)
            .with_context(|| format!("the folder {} cannot be made", folder.display()))?;
    }
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let documents = Documents::start(&patient(config), program).await?;
    documents.check(&options)?;
    let bars = Bars::new(args.files.len());
    let mut running = JoinSet::new();
    let mut results: Vec<Option<Result<Extraction, String>>> = args.files.iter().map(|_| None).collect();
    let mut written = 0;
    let failed = AtomicUsize::new(0);
    for (index, path) in args.files.iter().enumerate() {
        if running.len() >= OPEN {
            take(running.join_next().await, &mut results);
            write_ready(&args, &mut results, &mut written, &failed, &bars)?;
        }
        let (documents, options, path, bar) =
            (documents.clone(), options.clone(), path.clone(), bars.document(path));
        running.spawn(async move {
            let extracted = extract(&documents, &options, &path, &bar).await;
            bar.finish_and_clear();
            (index, extracted)
        });
    }
    while !running.is_empty() {
        take(running.join_next().await, &mut results);
        write_ready(&args, &mut results, &mut written, &failed, &bars)?;
    }
    // Those that were begun and gave nothing; each would keep all after it from being written.
    for lost in results.iter_mut().skip(written).filter(|result| result.is_none()) {
        *lost = Some(Err("the program failed while it worked on it; please report this".to_owned()));
    }
    write_ready(&args, &mut results, &mut written, &failed, &bars)?;
    bars.end();
    Ok(if failed.load(Ordering::Relaxed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The limits of a service protect its other callers. The command has none: files wait for their turn, and a long
/// scan may take its time.
fn patient(config: &Config) -> signalbox_config::Extraction {
    let mut extraction = config.extraction.clone();
    extraction.patience_seconds = extraction.patience_seconds.max(WAIT_SECONDS);
    extraction.wall_seconds = extraction.wall_seconds.max(WORK_SECONDS);
    extraction.cpu_seconds = extraction.cpu_seconds.max(WORK_SECONDS);
    extraction
}

fn options(args: &ExtractArgs) -> anyhow::Result<Options> {
    let Some(language) = language(&args.language) else {
        bail!("{} is not a language of ISO 639, such as deu, eng or fra", args.language);
    };
    let output_format = match args.format {
        Format::Markdown => OutputFormat::Markdown,
        Format::Json => OutputFormat::Json,
        Format::Plaintext => OutputFormat::Plaintext,
    };
    let ocr_engine = if args.no_ocr { OcrEngine::None } else { OcrEngine::Tesseract };
    Ok(Options { output_format, ocr_engine, language, front_matter: args.front_matter, ..Options::default() })
}

async fn extract(
    documents: &Documents,
    options: &Options,
    path: &Path,
    bar: &ProgressBar,
) -> Result<Extraction, String> {
    let bytes = tokio::fs::File::open(path).await.map_err(|error| format!("it cannot be opened: {error}"))?;
    let found = bytes.metadata().await.map_err(|error| format!("it cannot be read: {error}"))?;
    if !found.is_file() {
        return Err("it is not a file".to_owned());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let source = Source { bytes, length: found.len(), name: &name, share: Share::operator() };
    let mut progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    documents.extract(source, options, &mut progress).await.map_err(|failure| failure.to_string())
}

type Finished = Option<Result<(usize, Result<Extraction, String>), tokio::task::JoinError>>;

fn take(finished: Finished, results: &mut [Option<Result<Extraction, String>>]) {
    match finished {
        Some(Ok((index, extracted))) => results[index] = Some(extracted),
        Some(Err(error)) => tracing::error!(%error, "a document was not worked on to its end"),
        None => {}
    }
}

/// Refuses documents that would be written to the same file.
fn check_targets(args: &ExtractArgs, folder: &Path) -> anyhow::Result<()> {
    let mut targets = BTreeMap::new();
    for path in &args.files {
        let target = target(args.format, folder, path);
        if let Some(other) = targets.insert(target.clone(), path) {
            bail!(
                "{} and {} would both be written to {}: extract them into different folders",
                other.display(),
                path.display(),
                target.display()
            );
        }
    }
    Ok(())
}

/// The file in `folder` that the text of `path` is written to. The whole name stays, so that letter.pdf and letter.docx have their own.
fn target(format: Format, folder: &Path, path: &Path) -> PathBuf {
    let extension = match format {
        Format::Markdown => "md",
        Format::Json => "json",
        Format::Plaintext => "txt",
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{extension}"));
    folder.join(name)
}

/// Writes the finished texts, in the order of the command line.
fn write_ready(
    args: &ExtractArgs,
    results: &mut [Option<Result<Extraction, String>>],
    written: &mut usize,
    failed: &AtomicUsize,
    bars: &Bars,
) -> anyhow::Result<()> {
    while let Some(result) = results.get_mut(*written).and_then(Option::take) {
        let path = &args.files[*written];
        *written += 1;
        bars.all.inc(1);
        match result {
            Ok(extraction) => {
                bars.say(extraction.warnings.iter().map(|warning| format!("{}: {warning}", path.display())));
                write(args, path, &extraction)?;
            }
            Err(reason) => {
                failed.fetch_add(1, Ordering::Relaxed);
                bars.say([format!("signalbox: {}: {reason}", path.display())].into_iter());
            }
        }
    }
    Ok(())
}

fn write(args: &ExtractArgs, path: &Path, extraction: &Extraction) -> anyhow::Result<()> {
    let Some(folder) = &args.output else {
        let mut out = io::stdout().lock();
        return writeln!(out, "{}", extraction.content).context("standard output is closed");
    };
    let target = target(args.format, folder, path);
    fs::write(&target, format!("{}\n", extraction.content))
        .with_context(|| format!("{} cannot be written", target.display()))
}

/// Progress on a terminal; nothing elsewhere.
struct Bars {
    several: MultiProgress,
    all: ProgressBar,
}

impl Bars {
    fn new(count: usize) -> Self {
        let several = MultiProgress::new();
        if !io::stderr().is_terminal() {
            several.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} documents")
            .unwrap_or(ProgressStyle::default_bar());
        let all = several.add(ProgressBar::new(count as u64).with_style(style));
        Self { several, all }
    }

    fn document(&self, path: &Path) -> ProgressBar {
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} pages");
        let bar = ProgressBar::new(1).with_style(style.unwrap_or(ProgressStyle::default_bar()));
        bar.set_message(path.display().to_string());
        self.several.insert_before(&self.all, bar)
    }

    fn say(&self, lines: impl Iterator<Item = String>) {
        for line in lines {
            self.several.suspend(|| eprintln!("{line}"));
        }
    }

    fn end(&self) {
        self.all.finish_and_clear();
    }
}
