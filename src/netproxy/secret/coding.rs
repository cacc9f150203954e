//! Content codings, taken off as the bytes come (RFC 9110 section 8.4.1).

use std::io::{self, Read as _, Write as _};

use bytes::Bytes;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Coded bytes that are looked at in one step: what one can grow to is bounded by it.
const STEP: usize = 128;

/// The largest window of zstd in HTTP, 8 MiB (RFC 9659 section 3), as a power of two: a frame may ask for much more.
const ZSTD_WINDOW: u32 = 23;

/// What so many bytes may grow to. Brotli's, whose window alone is 16 MiB (RFC 7932 section 9.1), are taken out by parts.
const MOST: usize = 8 << 20;

/// The most that is taken out at once there.
const PART: usize = 16 << 10;

/// Undoes the coding of a body.
#[derive(Default)]
pub(crate) struct Decoder {
    layer: Option<Layer>,
    waiting: Bytes,
    /// More of what was taken may be had, though none of it waits.
    goes_on: bool,
}

enum Layer {
    Gzip(MultiGzDecoder<Sink>),
    /// Zlib, or raw as some servers have it: the first bytes tell.
    Deflate(Deflate),
    Brotli(Box<brotli::Decompressor<Source>>),
    Zstd(zstd::stream::write::Decoder<'static, Sink>),
}

enum Deflate {
    Unknown(Vec<u8>),
    Zlib(ZlibDecoder<Sink>),
    Raw(DeflateDecoder<Sink>),
}

/// What was decoded in one step.
#[derive(Default)]
struct Sink(Vec<u8>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST {
            return Err(io::Error::other("it grows too much"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Coded bytes that are read when they are needed.
#[derive(Default)]
struct Source(Bytes);

impl io::Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let piece = self.0.split_to(self.0.len().min(into.len()));
        into[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

impl Decoder {
    /// What undoes the codings that a message names.
    ///
    /// # Errors
    /// The coding that nothing here undoes.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, String> {
        let mut layers = Vec::new();
        for value in headers.get_all(CONTENT_ENCODING) {
            let list = value.to_str().map_err(|_| "of no name".to_owned())?;
            for coding in list.split(',').map(|coding| coding.trim().to_ascii_lowercase()) {
                match coding.as_str() {
                    "" | "identity" => {}
                    "gzip" | "x-gzip" => layers.push(Layer::Gzip(MultiGzDecoder::new(Sink::default()))),
                    "deflate" => layers.push(Layer::Deflate(Deflate::Unknown(Vec::new()))),
                    "br" => {
                        let reader = brotli::Decompressor::new(Source::default(), 4096);
                        layers.push(Layer::Brotli(Box::new(reader)));
                    }
                    "zstd" => {
                        let decoder = zstd::stream::write::Decoder::new(Sink::default());
                        let decoder = decoder.and_then(|mut decoder| {
                            decoder.window_log_max(ZSTD_WINDOW)?;
                            Ok(decoder)
                        });
                        layers.push(Layer::Zstd(decoder.map_err(|error| error.to_string())?));
                    }
                    // Any other is the origin's own word.
                    "compress" | "x-compress" | "dcb" | "dcz" | "exi" | "aes128gcm" => return Err(coding),
                    _ => return Err("in no known way".to_owned()),
                }
            }
        }
        if layers.len() > 1 {
            // Nobody does, and what grows twice has no bound.
            return Err("twice".to_owned());
        }
        Ok(Self { layer: layers.pop(), waiting: Bytes::new(), goes_on: false })
    }

    pub(crate) fn is_identity(&self) -> bool {
        self.layer.is_none()
    }

    /// Whether it holds megabytes of what it has undone. Those of gzip and deflate hold 32 KiB (RFC 1951 section 3.2).
    pub(super) fn has_window(&self) -> bool {
        matches!(self.layer, Some(Layer::Brotli(_) | Layer::Zstd(_)))
    }

    /// Whether nothing that was taken waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.goes_on
    }

    /// Takes coded bytes, for [`Decoder::step`].
    pub(crate) fn take(&mut self, bytes: Bytes) {
        debug_assert!(self.waiting.is_empty(), "one piece at a time");
        self.waiting = bytes;
    }

    /// The next decoded bytes, perhaps none yet; `None` when all that was taken is decoded.
    pub(crate) fn step(&mut self) -> io::Result<Option<Bytes>> {
        if self.is_empty() {
            return Ok(None);
        }
        if let Some(Layer::Brotli(decoder)) = &mut self.layer {
            if !self.waiting.is_empty() {
                decoder.get_mut().0 = std::mem::take(&mut self.waiting);
            }
            let part = part(decoder)?;
            self.goes_on = part.is_some();
            return Ok(part);
        }
        let Some(layer) = &mut self.layer else { return Ok(Some(std::mem::take(&mut self.waiting))) };
        let piece = self.waiting.split_to(self.waiting.len().min(STEP));
        Ok(Some(layer.decode(&piece)?.into()))
    }
}

impl Layer {
    fn decode(&mut self, coded: &[u8]) -> io::Result<Vec<u8>> {
        if coded.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Self::Gzip(decoder) => {
                decoder.write_all(coded)?;
                decoder.flush()?;
                Ok(std::mem::take(&mut decoder.get_mut().0))
            }
            Self::Deflate(deflate) => deflate.decode(coded),
            Self::Brotli(_) => Ok(Vec::new()), // See `step`.
            Self::Zstd(decoder) => {
                decoder.write_all(coded)?;
                decoder.flush()?;
                Ok(std::mem::take(&mut decoder.get_mut().0))
            }
        }
    }
}

/// What can be had of what is there; none where that is used up.
fn part(decoder: &mut brotli::Decompressor<Source>) -> io::Result<Option<Bytes>> {
    let mut part = vec![0; PART];
    match decoder.read(&mut part) {
        Ok(0) => Ok(None),
        Ok(length) => {
            part.truncate(length);
            Ok(Some(part.into()))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

impl Deflate {
    fn decode(&mut self, coded: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Unknown(first) => {
                first.extend_from_slice(coded);
                let Some(&[one, two]) = first.first_chunk::<2>() else { return Ok(Vec::new()) };
                let all = std::mem::take(first);
                // RFC 1950 section 2.2.
                let is_zlib = one & 0x0f == 8 && u16::from_be_bytes([one, two]) % 31 == 0;
                *self = match is_zlib {
                    true => Self::Zlib(ZlibDecoder::new(Sink::default())),
                    false => Self::Raw(DeflateDecoder::new(Sink::default())),
                };
                self.decode(&all)
            }
            Self::Zlib(decoder) => {
                decoder.write_all(coded)?;
                decoder.flush()?;
                Ok(std::mem::take(&mut decoder.get_mut().0))
            }
            Self::Raw(decoder) => {
                decoder.write_all(coded)?;
                decoder.flush()?;
                Ok(std::mem::take(&mut decoder.get_mut().0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn coded(coding: &str, text: &[u8]) -> Vec<u8> {
        match coding {
            "gzip" => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "deflate" => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "raw" => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "br" => {
                let mut out = Vec::new();
                brotli::BrotliCompress(&mut &text[..], &mut out, &Default::default()).unwrap();
                out
            }
            _ => zstd::encode_all(text, 3).unwrap(),
        }
    }

    fn decoded(coding: &str, bytes: &[u8], cut: usize) -> io::Result<Vec<u8>> {
        let mut headers = HeaderMap::new();
        let coding = if coding == "raw" { "deflate" } else { coding };
        headers.insert(CONTENT_ENCODING, coding.parse().unwrap());
        let mut decoder = Decoder::of(&headers).unwrap();
        let mut out = Vec::new();
        for piece in bytes.chunks(cut) {
            decoder.take(Bytes::copy_from_slice(piece));
            while let Some(bytes) = decoder.step()? {
                out.extend_from_slice(&bytes);
            }
        }
        Ok(out)
    }

    #[test]
    fn every_coding_is_taken_off_whatever_the_cuts() {
        let text: Vec<u8> = (0..20_000u32).flat_map(|n| format!("{n} ").into_bytes()).collect();
        for coding in ["gzip", "deflate", "raw", "br", "zstd"] {
            let bytes = coded(coding, &text);
            for cut in [1, 7, 1000, 1 << 20] {
                assert!(decoded(coding, &bytes, cut).unwrap() == text, "{coding} in pieces of {cut}");
            }
        }
    }

    #[test]
    fn a_window_of_any_size_is_had_by_parts() {
        let text = vec![0; 40 << 20];
        let mut coded = Vec::new();
        let params = brotli::enc::BrotliEncoderParams { lgwin: 24, quality: 5, ..Default::default() };
        brotli::BrotliCompress(&mut &text[..], &mut coded, &params).unwrap();
        assert!(coded.len() < 1 << 12);
        assert!(decoded("br", &coded, 1 << 20).unwrap() == text);
    }

    #[test]
    fn one_step_grows_to_so_much_and_no_more() {
        let mut sink = Sink::default();
        assert!(sink.write_all(&vec![0; MOST]).is_ok());
        assert!(sink.write_all(&[0]).is_err());
    }

    #[test]
    fn what_is_not_known_is_said() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "compress".parse().unwrap());
        assert_eq!(Decoder::of(&headers).err().unwrap(), "compress");
        headers.insert(CONTENT_ENCODING, "gzip, br".parse().unwrap());
        assert_eq!(Decoder::of(&headers).err().unwrap(), "twice");
        assert!(decoded("gzip", b"no gzip at all", 5).is_err());
        assert!(decoded("zstd", b"no zstd at all", 5).is_err());
    }
}
