//! The libraries that the process has loaded, by name.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    ptr,
};

use super::symbol;

// dlfcn.h; the same in glibc and musl.
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;
const RTLD_NODELETE: c_int = 0x1000;
/// No file name is longer (`PATH_MAX`, include/uapi/linux/limits.h).
const PATH_BYTES: usize = 4096;

/// The beginning of `struct dl_phdr_info` (link.h).
#[repr(C)]
struct Info {
    address: usize,
    name: *const c_char,
}

type Visitor = unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Visitor, *mut c_void) -> c_int;
type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// The state of a search for one library.
struct Search<'w> {
    word: &'w [u8],
    /// How many matches to skip.
    skip: usize,
    path: [u8; PATH_BYTES],
    found: bool,
}

/// Handles of the libraries whose file name contains the word.
pub(super) fn libraries(word: &[u8]) -> impl Iterator<Item = *mut c_void> {
    let mut passed = 0;
    core::iter::from_fn(move || {
        // Found first and opened afterwards: the visit holds the libraries' lock.
        let mut search = Search { word, skip: passed, path: [0; PATH_BYTES], found: false };
        passed += 1;
        // SAFETY: the functions have these signatures; the visitor gets what it expects.
        unsafe {
            let iterate = transmute::<*mut c_void, Iterate>(symbol(c"dl_iterate_phdr")?.as_ptr());
            let open = transmute::<*mut c_void, Open>(symbol(c"dlopen")?.as_ptr());
            iterate(visit, ptr::from_mut(&mut search).cast());
            search.found.then(|| open(search.path.as_ptr().cast(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE))
        }
    })
    .filter(|handle| !handle.is_null())
}

unsafe extern "C" fn visit(info: *const Info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: passed by `libraries`, and no other code uses it meanwhile.
    let search = unsafe { &mut *search.cast::<Search<'_>>() };
    // SAFETY: the C library passes a valid one, whose name is a text.
    let path = unsafe { CStr::from_ptr((*info).name) }.to_bytes_with_nul();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if !file.windows(search.word.len().max(1)).any(|window| window == search.word) {
        return 0;
    }
    if search.skip > 0 {
        search.skip -= 1;
        return 0;
    }
    if let Some(place) = search.path.get_mut(..path.len()) {
        place.copy_from_slice(path);
        search.found = true;
    }
    1
}
