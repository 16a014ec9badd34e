use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Barrier, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use signalbox_confinement::{ProcessorClock, run_in_idle_time, worked_from_now};
use signalbox_pdf::GrayImage;
use tesseract_rs::{TessPageSegMode, TesseractAPI};

use super::{
    Recognised, RecognisedWord, Recogniser, Task, hocr,
    page_watch::{PageWatch, STALLED, Worked},
    paper,
};
use crate::failure::Failure;

/// Pages whose words are less sure may lie on their side.
const UNSURE: f32 = 0.5;
/// How sure Tesseract has to be that a page does.
const TURN_CONFIDENCE: f32 = 1.0;
const ORIENTATION: &str = "osd";
const STACK_BYTES: usize = 8 << 20;

/// Time on a processor for one page; Tesseract takes seconds for a page of text, and minutes for some drawings.
const PAGE_LIMIT: Duration = Duration::from_secs(30);

/// Why `page` was left out.
pub(super) fn left_out(page: usize) -> String {
    let (limit, latest) = (PAGE_LIMIT.as_secs(), (STALLED * PAGE_LIMIT).as_secs());
    format!(
        "page {page} was left out: it was not recognised within {limit} s of processor time ({latest} s on the clock)"
    )
}

type Answer = Result<Recognised, Failure>;

/// The next task of a pool thread.
enum Order {
    /// The page of a ticket, in a language.
    Recognise(u64, Task, String),
    /// Load the data of a language, and wait until every other thread has done so.
    Load(String, Arc<Barrier>),
}

/// The progress of a pool thread, by ticket.
enum Event {
    Started(u64, Instant, Worked),
    Ended(u64, Answer),
}

/// Recognises with the system's Tesseract, pages in parallel, each thread with an interface of its own.
pub(crate) struct Tesseract {
    tessdata: PathBuf,
    languages: Vec<String>,
    threads: usize,
    /// Time on a processor for one page.
    limit: Duration,
    pool: Option<Pool>,
    found: Vec<Recognised>,
    failure: Option<Failure>,
}

struct Pool {
    tessdata: PathBuf,
    orders: SyncSender<Order>,
    waiting: Arc<Mutex<Receiver<Order>>>,
    sender: Sender<Event>,
    events: Receiver<Event>,
    threads: usize,
    watch: PageWatch,
}

impl Pool {
    fn start(tessdata: &Path, threads: usize, limit: Duration) -> Self {
        let (orders, waiting) = sync_channel::<Order>(1);
        let (sender, events) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let tessdata = tessdata.to_owned();
        let watch = PageWatch::new(limit, 0);
        let mut pool = Self { tessdata, orders, waiting, sender, events, threads: 0, watch };
        pool.threads = (0..threads).filter(|_| pool.spawn()).count();
        pool.watch = PageWatch::new(limit, pool.threads);
        pool
    }

    /// Whether another thread was started.
    fn spawn(&self) -> bool {
        let (waiting, sender) = (self.waiting.clone(), self.sender.clone());
        let tessdata = self.tessdata.clone();
        let worker = thread::Builder::new().stack_size(STACK_BYTES);
        worker.spawn(move || work(&waiting, &sender, &tessdata)).is_ok()
    }

    /// The next page that has ended; none if a page has started, or its time is over.
    fn wait(&mut self) -> Result<Option<Answer>, Failure> {
        let event = match self.watch.due() {
            Some(due) => match self.events.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {
                    let mut watch = std::mem::replace(&mut self.watch, PageWatch::new(Duration::ZERO, 0));
                    watch.expire(Instant::now(), || self.spawn());
                    self.watch = watch;
                    return Ok(None);
                }
                event => event.map_err(|_| Failure::Crash)?,
            },
            None => self.events.recv().map_err(|_| Failure::Crash)?,
        };
        match event {
            Event::Started(ticket, at, worked) => {
                self.watch.start(ticket, at, worked);
                Ok(None)
            }
            Event::Ended(ticket, answer) => Ok(self.watch.end(ticket).then_some(answer)),
        }
    }
}

/// ISO 639-3 codes of the languages whose data are in `tessdata`.
pub(crate) fn installed_languages(tessdata: &Path) -> Vec<String> {
    let files = fs::read_dir(tessdata).into_iter().flatten().flatten().map(|entry| entry.path());
    let data = files.filter(|path| path.extension().is_some_and(|extension| extension == "traineddata"));
    let names = data.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let mut languages: Vec<String> =
        names.filter(|name| name.len() == 3 && name != ORIENTATION && name != "equ").collect();
    languages.sort();
    languages
}

impl Tesseract {
    /// With the language data in `tessdata`, on `threads` threads; none if there are no data.
    pub(crate) fn new(tessdata: &Path, threads: usize) -> Option<Self> {
        let languages = installed_languages(tessdata);
        let tessdata = tessdata.to_owned();
        (!languages.is_empty()).then_some(Self {
            tessdata,
            languages,
            threads: threads.max(1),
            limit: PAGE_LIMIT,
            pool: None,
            found: Vec::new(),
            failure: None,
        })
    }

    fn pool(&mut self) -> &mut Pool {
        self.pool.get_or_insert_with(|| Pool::start(&self.tessdata, self.threads, self.limit))
    }

    /// Loads the data of `language` and of orientation in every thread, for a process that may soon open no more files.
    pub(crate) fn prepare(&mut self, language: &str) {
        let pool = self.pool();
        // Another thread could not load them.
        pool.watch.forbid_spares();
        let barrier = Arc::new(Barrier::new(pool.threads + 1));
        let ordered = (0..pool.threads)
            .all(|_| pool.orders.send(Order::Load(language.to_owned(), barrier.clone())).is_ok());
        if ordered {
            barrier.wait();
        }
    }

    /// Waits until a page starts or ends, or its time is over.
    fn wait(&mut self) -> Result<(), Failure> {
        match self.pool().wait()? {
            Some(Ok(recognised)) => self.found.push(recognised),
            Some(Err(failure)) => self.failure = Some(failure),
            None => {}
        }
        Ok(())
    }
}

impl Recogniser for Tesseract {
    fn name(&self) -> &'static str {
        "tesseract"
    }

    fn languages(&self) -> &[String] {
        &self.languages
    }

    fn begin(&mut self, task: Task, language: &str) -> Result<(), Failure> {
        let unavailable =
            || Failure::unavailable("text recognition cannot be started: try again in a moment");
        let pool = self.pool();
        if pool.threads == 0 {
            // The next document tries again.
            self.pool = None;
            return Err(unavailable());
        }
        let Some(ticket) = pool.watch.admit(task.page) else { return Ok(()) };
        let mut order = Order::Recognise(ticket, task, language.to_owned());
        loop {
            let pool = self.pool();
            if !pool.watch.awaits(ticket) {
                return Ok(());
            }
            match pool.orders.try_send(order) {
                Ok(()) => return Ok(()),
                // A thread that takes an order publishes that, so that waiting ends.
                Err(TrySendError::Full(returned)) => order = returned,
                Err(TrySendError::Disconnected(_)) => return Err(unavailable()),
            }
            self.wait()?;
        }
    }

    fn finish(&mut self) -> Result<Vec<Recognised>, Failure> {
        while self.pool.as_ref().is_some_and(|pool| !pool.watch.is_done()) {
            self.wait()?;
        }
        let found = std::mem::take(&mut self.found);
        self.failure.take().map_or(Ok(found), Err)
    }

    fn left_out(&mut self) -> Vec<usize> {
        self.pool.as_mut().map_or_else(Vec::new, |pool| pool.watch.take_left_out())
    }

    fn abandon(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.watch.forget();
        }
        (self.found, self.failure) = (Vec::new(), None);
    }
}

/// A thread of the pool: an interface stays as long as the language does.
fn work(orders: &Mutex<Receiver<Order>>, events: &Sender<Event>, tessdata: &Path) {
    // Pages keep every core busy for seconds, so all other work is preferred. A failure is harmless.
    let _ = run_in_idle_time(None);
    let clock = ProcessorClock::of_this_thread().ok();
    let mut ready: Option<(String, TesseractAPI)> = None;
    let mut orientation = Orientation { tessdata, loaded: None };
    loop {
        let next = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let (ticket, task, language) = match next {
            Ok(Order::Recognise(ticket, task, language)) => (ticket, task, language),
            Ok(Order::Load(language, all)) => {
                ready = open(tessdata, &language).map(|api| (language, api));
                orientation.loaded = orientation.open();
                all.wait();
                continue;
            }
            Err(_) => return,
        };
        let worked = Box::new(worked_from_now(clock));
        if events.send(Event::Started(ticket, Instant::now(), worked)).is_err() {
            return;
        }
        if ready.as_ref().is_none_or(|(known, _)| *known != language) {
            ready = open(tessdata, &language).map(|api| (language.clone(), api));
        }
        let answer = match &ready {
            Some((_, api)) => recognise(api, task, &orientation),
            None => Err(Failure::unavailable(format!("the data of language {language} cannot be loaded"))),
        };
        if events.send(Event::Ended(ticket, answer)).is_err() {
            return;
        }
    }
}

fn open(tessdata: &Path, language: &str) -> Option<TesseractAPI> {
    let api = TesseractAPI::new();
    api.init(tessdata, language).ok()?;
    // As the tesseract command does: columns and blocks are found by itself.
    api.set_page_seg_mode(TessPageSegMode::PSM_AUTO).ok()?;
    Some(api)
}

/// Finds out how pages lie.
struct Orientation<'a> {
    tessdata: &'a Path,
    /// If the data had to be loaded beforehand.
    loaded: Option<TesseractAPI>,
}

impl Orientation<'_> {
    fn open(&self) -> Option<TesseractAPI> {
        let api = TesseractAPI::new();
        api.init(self.tessdata, ORIENTATION).ok()?;
        Some(api)
    }
}

fn recognise(api: &TesseractAPI, task: Task, orientation: &Orientation<'_>) -> Answer {
    let (mut image, mut turns) = (task.image, 0);
    paper::even_out(&mut image);
    let Read { mut words, mut slope, is_sideways } = read(api, &image)?;
    if (is_sideways || super::confidence(&words) < UNSURE)
        && let Some((quarters, turned)) = upright(&image, orientation)
    {
        let again = read(api, &turned)?;
        let is_better = super::confidence(&again.words) > super::confidence(&words);
        // Lines that go down may have been read well; they are no less so level, and in order.
        if is_better || (is_sideways && !again.is_sideways) {
            (words, slope, image, turns) = (again.words, again.slope, turned, quarters);
        }
    }
    let points = |pixels: u32| pixels as f32 * 72.0 / image.dpi.max(1) as f32;
    let (width, height) = (points(image.width), points(image.height));
    Ok(Recognised { page: task.page, width, height, turns, slope, words })
}

/// The words read on an image without rotation.
struct Read {
    words: Vec<RecognisedWord>,
    /// By which lines fell to the right.
    slope: f32,
    /// Most lines do not go from left to right.
    is_sideways: bool,
}

fn read(api: &TesseractAPI, image: &GrayImage) -> Result<Read, Failure> {
    let hocr = (|| {
        let (width, height) = (image.width as i32, image.height as i32);
        api.set_image(&image.pixels, width, height, 1, width)?;
        api.set_source_resolution(image.dpi as i32)?;
        api.recognize()?;
        let hocr = api.get_hocr_text(0);
        api.clear()?;
        hocr
    })();
    let hocr = hocr.map_err(|_| Failure::corrupt("a picture in the document cannot be recognised"))?;
    let words = hocr::words(&hocr, image.dpi, Some(image));
    Ok(Read { words, slope: hocr::mean_slope(&hocr), is_sideways: hocr::is_sideways(&hocr) })
}

/// The image rotated by quarter turns until its text is upright; `None` if it is upright, or if the orientation is
/// unknown.
fn upright(image: &GrayImage, orientation: &Orientation<'_>) -> Option<(u32, GrayImage)> {
    let opened;
    let api = match &orientation.loaded {
        Some(loaded) => loaded,
        None => {
            opened = orientation.open()?;
            &opened
        }
    };
    api.set_image(&image.pixels, image.width as i32, image.height as i32, 1, image.width as i32).ok()?;
    let (degrees, confidence, ..) = api.detect_os().ok()?;
    if confidence < TURN_CONFIDENCE {
        return None;
    }
    match degrees {
        // How far it has been turned; the rest of the circle turns it back.
        90 | 180 | 270 => {
            let quarters = (360 - degrees as u32) / 90;
            Some((quarters, turn(image, quarters)))
        }
        _ => None,
    }
}

/// Turns a picture by quarter turns, clockwise.
fn turn(image: &GrayImage, quarters: u32) -> GrayImage {
    let (width, height) = (image.width as usize, image.height as usize);
    let (new_width, new_height) = if quarters.is_multiple_of(2) { (width, height) } else { (height, width) };
    let mut pixels = Vec::with_capacity(width * height);
    for y in 0..new_height {
        for x in 0..new_width {
            let (from_x, from_y) = match quarters {
                1 => (y, height - 1 - x),
                2 => (width - 1 - x, height - 1 - y),
                3 => (width - 1 - y, x),
                _ => (x, y),
            };
            pixels.push(image.pixels[from_y * width + from_x]);
        }
    }
    GrayImage { width: new_width as u32, height: new_height as u32, pixels, dpi: image.dpi }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locate;

    /// A page of noise, on which Tesseract works for long.
    fn noise(page: usize) -> Task {
        let (width, height, mut state) = (800, 800, 1_u32);
        let pixels = (0..width * height).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        Task { page, image: GrayImage { width, height, pixels: pixels.collect(), dpi: 300 } }
    }

    #[test]
    fn pages_that_take_too_long_are_left_out() {
        let tessdata = locate::tessdata(None).expect("Tesseract's data are installed by tools/bootstrap");
        let mut tesseract = Tesseract::new(&tessdata, 1).unwrap();
        tesseract.limit = Duration::from_millis(1);
        for page in 1..=4 {
            tesseract.begin(noise(page), "eng").unwrap();
        }
        assert!(tesseract.finish().unwrap().is_empty());
        assert_eq!(tesseract.left_out(), [1, 2, 3, 4]);
        // Its threads end before the process does.
        let Pool { events, .. } = tesseract.pool.take().unwrap();
        while events.recv().is_ok() {}
    }

    #[test]
    fn four_quarter_turns_are_none() {
        let image = GrayImage { width: 3, height: 2, pixels: vec![1, 2, 3, 4, 5, 6], dpi: 300 };
        let once = turn(&image, 1);
        assert_eq!((once.width, once.height, once.pixels.as_slice()), (2, 3, &[4, 1, 5, 2, 6, 3][..]));
        assert_eq!(turn(&turn(&once, 1), 2), image);
        assert_eq!(turn(&once, 3), image);
    }
}
