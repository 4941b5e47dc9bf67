//! SIMD levels: found at run time, forced by `KVSTORE_CODEC_LEVEL` or by a call's options.

use std::sync::OnceLock;

use crate::error::Error;
use crate::job::{Family, Job};
use crate::planes;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::simd;
use crate::traffic::traffic_scalar;

/// The environment variable that forces a level: `scalar`, `neon`, `avx2`, `avx512`,
/// `avx512vbmi`.
pub const LEVEL_VARIABLE: &str = "KVSTORE_CODEC_LEVEL";

/// A set of kernels. Each gives the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The specification, for any machine.
    Scalar,
    /// Arm NEON.
    Neon,
    /// AVX2.
    Avx2,
    /// AVX-512 F, BW, VL and DQ.
    Avx512,
    /// The same and VBMI.
    Avx512Vbmi,
}

/// The kernels of one level.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub(crate) level: Level,
    /// Encodes whole blocks of a family.
    pub(crate) encode: fn(&Job<'_>, Family, &[u16], &mut [u8], &mut [u8]),
    /// Decodes whole blocks of a family.
    pub(crate) decode: fn(&Job<'_>, Family, &[u8], &[u8], &mut [u16]),
    /// Words to low and high bytes.
    pub(crate) split: fn(&[u16], &mut [u8], &mut [u8]),
    /// Low and high bytes to words.
    pub(crate) join: fn(&[u8], &[u8], &mut [u16]),
    /// Each line as often as the target is larger; whether past the cache.
    pub(crate) traffic: fn(&[u8], &mut [u16], bool),
}

static SCALAR: Kernels = Kernels {
    level: Level::Scalar,
    encode: |job, _, source, codes, scales| job.encode_blocks(0, source, codes, scales),
    decode: |job, _, codes, scales, target| job.decode_blocks(0, codes, scales, target),
    split: planes::split_scalar,
    join: planes::join_scalar,
    traffic: |source, target, _| traffic_scalar(source, target),
};

impl Level {
    /// All levels, weakest first.
    pub const ALL: [Self; 5] =
        [Self::Scalar, Self::Neon, Self::Avx2, Self::Avx512, Self::Avx512Vbmi];

    /// The name in reports and in [`LEVEL_VARIABLE`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Vbmi => "avx512vbmi",
        }
    }

    /// The level of a name, whether or not this CPU has it.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn named(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|level| level.name() == name).ok_or_else(|| Error::Unknown {
            kind: "level",
            given: name.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }

    /// The levels of this CPU, weakest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|level| level.kernels().is_ok()).collect()
    }

    /// The level that calls take by default.
    #[must_use]
    pub fn chosen() -> Self {
        kernels().level
    }

    /// This level's kernels.
    ///
    /// # Errors
    /// [`Error::Argument`] if this CPU does not have it.
    pub(crate) fn kernels(self) -> Result<&'static Kernels, Error> {
        let found = match self {
            Self::Scalar => Some(&SCALAR),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            _ => simd::kernels(self),
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            _ => None,
        };
        found.ok_or_else(|| Error::Argument {
            what: "level",
            given: self.name().to_owned(),
            wanted: "a level that this CPU has".to_owned(),
        })
    }
}

/// The kernels of the level that the environment asks for, else of the best one.
///
/// An unknown or missing level in the environment is passed over: a library does not fail where it
/// was not asked; [`Level::chosen`] says what runs.
pub(crate) fn kernels() -> &'static Kernels {
    static CHOSEN: OnceLock<&'static Kernels> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let asked = std::env::var(LEVEL_VARIABLE).ok();
        let asked = asked.and_then(|name| Level::named(&name).ok());
        let best = Level::ALL.into_iter().rev();
        asked.into_iter().chain(best).find_map(|level| level.kernels().ok()).unwrap_or(&SCALAR)
    })
}
