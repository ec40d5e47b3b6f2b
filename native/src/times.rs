//! Event times: what `log_partitioner.partitioning.event_time` reads of texts and numbers, as far as it is frequent.

const US_PER_S: i64 = 1_000_000;
const S_PER_DAY: i64 = 86_400;
const LARGEST: [(u64, Unit); 3] =
    [(100_000_000_000, Unit::Seconds), (100_000_000_000_000, Unit::Millis), (100_000_000_000_000_000, Unit::Micros)];

/// What a number counts; `Auto` decides by its magnitude.
#[derive(Clone, Copy, PartialEq)]
pub enum Unit {
    Auto,
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    pub fn parse(name: &str) -> Option<Unit> {
        Some(match name {
            "auto" => Unit::Auto,
            "s" => Unit::Seconds,
            "ms" => Unit::Millis,
            "us" => Unit::Micros,
            "ns" => Unit::Nanos,
            _ => return None,
        })
    }

    /// What a number counts of which this is the magnitude, rounded down.
    fn of(self, magnitude: u64) -> Unit {
        if self != Unit::Auto {
            return self;
        }
        LARGEST.iter().find(|(limit, _)| magnitude < *limit).map_or(Unit::Nanos, |(_, unit)| *unit)
    }
}

/// Microseconds since the epoch; None where Python has to look.
pub fn from_int(value: i64, unit: Unit) -> Option<i64> {
    match unit.of(value.unsigned_abs()) {
        Unit::Seconds => value.checked_mul(US_PER_S),
        Unit::Millis => value.checked_mul(1000),
        Unit::Micros => Some(value),
        _ => Some(value.div_euclid(1000)),
    }
}

/// The nearest microsecond; None where Python has to look.
pub fn from_double(value: f64, unit: Unit) -> Option<i64> {
    let micros = match unit.of(value.abs() as u64) {
        Unit::Seconds => value * 1e6,
        Unit::Millis => value * 1e3,
        Unit::Micros => value,
        _ => value / 1e3,
    };
    let micros = micros.round_ties_even();
    (micros.abs() < 9e18).then_some(micros as i64)
}

/// `YYYY-MM-DDTHH:MM:SS`, maybe a fraction, maybe `Z`, `z` or `+HH:MM`, `+HHMM`, `+HH`; without, UTC if that is what it means.
/// None for any other text.
pub fn from_text(text: &[u8], is_naive_utc: bool) -> Option<i64> {
    if text.len() < 19 || !matches!(text[10], b'T' | b't' | b' ') {
        return None;
    }
    if text[4] != b'-' || text[7] != b'-' || text[13] != b':' || text[16] != b':' {
        return None;
    }
    let (year, month, day) = (number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let (hour, minute, second) = (number(&text[11..13])?, number(&text[14..16])?, number(&text[17..19])?);
    if year < 1 || !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (micros, zone) = fraction(&text[19..])?;
    if zone.is_empty() && !is_naive_utc {
        return None;
    }
    let seconds = days_since_epoch(year, month, day) * S_PER_DAY + hour * 3600 + minute * 60 + second - offset_s(zone)?;
    Some(seconds * US_PER_S + micros)
}

/// The microseconds of `.fff...`, digits beyond the sixth cut off as Python does, and what follows it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(rest) = text.strip_prefix(b".") else { return Some((0, text)) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let kept = digits.min(6);
    let scale = 10_i64.pow(6 - kept as u32);
    Some((number(&rest[..kept])? * scale, &rest[digits..]))
}

fn offset_s(zone: &[u8]) -> Option<i64> {
    if zone.is_empty() || zone == b"Z" || zone == b"z" {
        return Some(0);
    }
    let sign = match zone[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = match zone.len() {
        6 if zone[3] == b':' => (number(&zone[1..3])?, number(&zone[4..6])?),
        5 => (number(&zone[1..3])?, number(&zone[3..5])?),
        3 => (number(&zone[1..3])?, 0),
        _ => return None,
    };
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A date as `YYYY-MM-DD`; None for one of no year from 1 to 9999.
pub fn date_text(days: i64) -> Option<String> {
    let first = days_since_epoch(1, 1, 1);
    if !(first..days_since_epoch(10_000, 1, 1)).contains(&days) {
        return None;
    }
    let mut year = 2 + (days - first) * 400 / 146_097; // maybe too late: years are not of one length
    while days_since_epoch(year, 1, 1) > days {
        year -= 1;
    }
    let month = (1..=12).rev().find(|&month| days_since_epoch(year, month, 1) <= days)?;
    let day = 1 + days - days_since_epoch(year, month, 1);
    Some(format!("{year:04}-{month:02}-{day:02}"))
}

/// An instant as RFC 3339 with six digits and `Z`; None for one of no year from 1 to 9999.
pub fn instant_text(micros: i64) -> Option<String> {
    let (seconds, fraction) = (micros.div_euclid(US_PER_S), micros.rem_euclid(US_PER_S));
    let (date, second) = (date_text(seconds.div_euclid(S_PER_DAY))?, seconds.rem_euclid(S_PER_DAY));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Some(format!("{date}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z"))
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar: years begin in March, so that leap days end them.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year;
    days - 719_468
}
