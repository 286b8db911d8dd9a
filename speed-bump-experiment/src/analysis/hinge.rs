//! Slack: how much delay per unit stays hidden before it shows.
//!
//! A function beside the critical path costs nothing until it outlasts what it runs beside: `time = s ·
//! max(0, delay − slack)`. The slack is fitted by least squares, with the interval of those that fit nearly
//! as well (profile of the squares, by F).

use statrs::distribution::{ContinuousCDF as _, FisherSnedecor};

use super::{contrast::Contrast, estimate::MIN_BLOCKS, outliers, ranks};

/// Delays have to differ by this factor at least, for a bend to be seen.
const RANGE: f64 = 1.8;
/// Places between no slack and the longest delay that are tried.
const PLACES: usize = 400;
/// Bends that would show more than this share of the delay beyond them are not believed.
const MAX_BEYOND: f64 = 3.0;
/// What has to show beyond a bend that is not as steep, where a steeper one would fit better.
const MIN_BEYOND: usize = 2;
/// A bend is believed when there would be one like it without slack in one case of so many.
const ERROR: f64 = 0.01;

/// A bend that was found. Times per unit, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hinge {
    /// Delay that stays hidden.
    pub slack: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The share of the delay beyond it that shows up.
    pub beyond: f64,
}

/// The bend in how time depends on delay; `None` where a straight line from zero does as well.
pub fn hinge(contrasts: &[Contrast]) -> Option<Hinge> {
    let contrasts = &without_outliers(contrasts);
    let delays = || contrasts.iter().map(|of| of.delay);
    let (least, most) = (delays().fold(f64::INFINITY, f64::min), delays().fold(0.0, f64::max));
    if contrasts.len() < MIN_BLOCKS || least <= 0.0 || most < RANGE * least {
        return None;
    }
    let (line, _) = fit(contrasts, 0.0);
    let places = || places(most);
    let fits = || places().map(|slack| (slack, fit(contrasts, slack)));
    let best = |of: &mut dyn Iterator<Item = (f64, (f64, f64))>| {
        of.map(|(slack, (squares, beyond))| (slack, squares, beyond)).min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let (mut slack, mut squares, mut beyond) = best(&mut fits())?;
    if beyond > MAX_BEYOND {
        // One slice far off makes such a bend; but so do a few whose delays are nearly the same.
        (slack, squares, beyond) = best(&mut fits().filter(|(_, (_, beyond))| *beyond <= MAX_BEYOND))?;
        let shows = |of: &&Contrast| of.delay > slack && of.time >= beyond * (of.delay - slack) / 2.0;
        if contrasts.iter().filter(shows).count() < MIN_BEYOND {
            return None;
        }
    }
    let freedom = (contrasts.len() - 2) as f64;
    let fisher = FisherSnedecor::new(1.0, freedom).ok()?;
    let believed = line > squares * (1.0 + fisher.inverse_cdf(1.0 - ERROR) / freedom);
    if !believed || beyond <= 0.0 {
        return None;
    }
    let bound = squares * (1.0 + fisher.inverse_cdf(0.95) / freedom);
    // Few doses beyond the bend fit a steep line behind a late bend as well as they fit a plain one. Delay
    // that shows more than once is rare.
    let plain = best(&mut fits().filter(|(_, (_, beyond))| *beyond <= 1.0));
    let (slack, beyond) = match plain {
        Some((slack, squares, beyond)) if squares <= bound && beyond > 0.0 => (slack, beyond),
        Some(_) | None => (slack, beyond),
    };
    let within = || places().filter(|slack| fit(contrasts, *slack).0 <= bound);
    let low = within().fold(f64::INFINITY, f64::min);
    let high = within().fold(0.0, f64::max);
    Some(Hinge { slack, low: low.min(slack), high: high.max(slack), beyond })
}

/// Places of a bend.
fn places(most: f64) -> impl Iterator<Item = f64> {
    (0..PLACES).map(move |place| most * place as f64 / PLACES as f64)
}

/// Times with those that are far from the bend that fits best put nearer to it: squares would follow them.
fn without_outliers(contrasts: &[Contrast]) -> Vec<Contrast> {
    /// So many deviations are far.
    const FAR: f64 = 4.0;
    /// What fits best is looked for so often.
    const TURNS: usize = 2;
    let mut within = contrasts.to_vec();
    if contrasts.len() < ranks::MIN {
        return within;
    }
    let most = contrasts.iter().map(|of| of.delay).fold(0.0, f64::max);
    for _ in 0..TURNS {
        let fits = places(most).map(|slack| (slack, fit(&within, slack)));
        let best = fits.min_by(|a, b| a.1.0.total_cmp(&b.1.0));
        let Some((slack, (_, slope))) = best else { break };
        let usual = |of: &Contrast| slope * (of.delay - slack).max(0.0);
        let mut far: Vec<f64> = contrasts.iter().map(|of| (of.time - usual(of)).abs()).collect();
        let most = FAR * outliers::deviation(&mut far);
        if !most.is_finite() {
            break;
        }
        let near = |of: &Contrast| {
            let usual = usual(of);
            Contrast { time: of.time.clamp(usual - most, usual + most), ..*of }
        };
        within = contrasts.iter().map(near).collect();
    }
    within
}

/// The sum of squares that a slack leaves, and the slope beyond it.
fn fit(contrasts: &[Contrast], slack: f64) -> (f64, f64) {
    let beyond = |of: &Contrast| (of.delay - slack).max(0.0);
    let squares: f64 = contrasts.iter().map(|of| beyond(of).powi(2)).sum();
    let slope = match squares {
        0.0 => 0.0,
        squares => contrasts.iter().map(|of| beyond(of) * of.time).sum::<f64>() / squares,
    };
    (contrasts.iter().map(|of| (of.time - slope * beyond(of)).powi(2)).sum(), slope)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Delays of 5, 10 and 20 with a little noise that repeats.
    fn blocks(time: impl Fn(f64) -> f64) -> Vec<Contrast> {
        let noise = [0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.4, -0.3, 0.0, 0.2, -0.2];
        let delays = [5.0, 10.0, 20.0].into_iter().cycle();
        let of = (0..).zip(noise.iter().zip(delays));
        of.map(|(block, (noise, delay))| Contrast { block, time: time(delay) + noise, delay }).collect()
    }

    #[test]
    fn slack_is_found_within_its_interval() {
        let found = hinge(&blocks(|delay| (delay - 8.0_f64).max(0.0))).unwrap();
        assert!(found.low <= 8.0 && 8.0 <= found.high && found.high - found.low < 3.0, "{found:?}");
        assert!((found.beyond - 1.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn a_few_slices_far_off_hide_no_bend() {
        let hidden = |delay: f64| (delay - 8.0_f64).max(0.0);
        let mut of = [blocks(hidden), blocks(hidden), blocks(hidden)].concat();
        for number in [3, 11, 20, 29] {
            of[number].time += if number % 2 == 0 { 40.0 } else { -40.0 };
        }
        let found = hinge(&of).unwrap();
        assert!((7.0..9.0).contains(&found.slack) && found.high - found.low < 3.0, "{found:?}");
    }

    /// As measured of a function that is hidden for 2.5 ms: two slices beyond, with nearly the same delay.
    #[test]
    fn a_bend_is_found_by_two_slices_beyond_it() {
        let measured = [
            (156, 14),
            (316, -6),
            (314, -71),
            (624, 27),
            (318, 11),
            (318, -5),
            (317, -12),
            (315, -75),
            (1257, -31),
            (314, -35),
            (1260, 20),
            (1267, -107),
            (2506, 30),
            (1254, 48),
            (2498, 9),
            (1266, 132),
            (5026, 2459),
            (2532, 24),
            (5041, 2664),
            (1265, 122),
        ];
        let contrast =
            |(block, (delay, time))| Contrast { block, time: f64::from(time), delay: f64::from(delay) };
        let of: Vec<Contrast> = (0..).zip(measured).map(contrast).collect();
        let found = hinge(&of).unwrap();
        assert!((2400.0..2700.0).contains(&found.slack) && found.low > 2000.0, "{found:?}");
        assert!((0.9..=1.1).contains(&found.beyond), "{found:?}");
        // One of the two that is far off is none.
        let mut one = of;
        for (number, time) in [(16, 40.0), (18, 3000.0)] {
            one[number].time = time;
        }
        assert_eq!(hinge(&one), None);
    }

    #[test]
    fn a_line_has_none() {
        assert_eq!(hinge(&blocks(|delay| delay)), None);
        assert_eq!(hinge(&blocks(|_| 0.0)), None);
        assert_eq!(hinge(&blocks(|delay| -delay)), None);
        assert_eq!(hinge(&blocks(|delay| (delay - 8.0_f64).max(0.0))[..7]), None);
    }

    #[test]
    fn one_delay_shows_no_bend() {
        let of: Vec<_> = blocks(|_| 3.0).into_iter().map(|of| Contrast { delay: 5.0, ..of }).collect();
        assert_eq!(hinge(&of), None);
    }
}
