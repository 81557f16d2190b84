# What quickstart, test and the third-party builders share: telling what happens, and getting what is missing.
# Sourced, never run. Everything here may run twice: each function looks first and does only what is left to do.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=$repo/build
third_party=${TNR_THIRD_PARTY:-$build_dir/third_party}
log_dir=$build_dir/logs
started_at=$SECONDS

# Progress goes to stderr, so that whoever calls a script for its result gets only that.
step() { printf '[%4d s] %s\n' $((SECONDS - started_at)) "$*" >&2; }

fail() {
    printf 'error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf '       %s\n' "${@:2}" >&2
    exit 1
}

# quietly "what we do" COMMAND...: one line when it starts; the output goes to a log whose end is shown on failure.
quietly() {
    local what=$1 status log
    shift
    mkdir -p "$log_dir"
    log=$(tr -cs 'a-zA-Z0-9\n' - <<<"$what" | sed 's/-*$//')
    log=$log_dir/${log:0:100}.log  # a file's name has a limit, what we do has none
    step "$what"
    # Not `"$@" || status=$?`: inside that, a function would go on after a command of its own that failed.
    set +e
    (set -e; "$@") >"$log" 2>&1 </dev/null
    status=$?
    set -e
    if [ $status -ne 0 ]; then
        tail -n 40 "$log" >&2
        fail "$what: exit code $status" "the whole output is in $log"
    fi
}

# A script's opening comment is its help.
script_help() { sed -n '2,/^[^#]/s/^#\( \|$\)//p' "$1"; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "installing packages needs root, and there is no sudo" "run this script as root, or install sudo"
    fi
}

# --- packages ---------------------------------------------------------------------------------------------------

# Sets distribution (debian or ubuntu) and release (12, 22.04, ...), or says why we cannot go on.
detect_distribution() {
    distribution=$(. /etc/os-release && echo "$ID")
    release=$(. /etc/os-release && echo "${VERSION_ID:-unknown}")
    case $distribution in
        debian) dpkg --compare-versions "$release" ge 12 && return ;;
        ubuntu) dpkg --compare-versions "$release" ge 22.04 && return ;;
    esac
    fail "this is $distribution $release; packages are known for Debian 12 and Ubuntu 22.04 or newer" \
        "install what packaging/lib.sh names yourself, then: cmake --preset release && cmake --build --preset release"
}

# What a build of everything needs. autoconf to libtool are for libsodium and libcurl, built from their source packages.
build_packages() {
    local cppzmq=cppzmq-dev
    [ "$distribution $release" != "ubuntu 22.04" ] || cppzmq=libzmq3-dev  # zmq.hpp is part of it there
    echo ca-certificates g++ ninja-build cmake ccache pkg-config python3 python3-venv dpkg-dev xz-utils \
        autoconf automake libtool libcli11-dev libnghttp2-dev nlohmann-json3-dev libssh2-1-dev libssl-dev \
        $cppzmq libzstd-dev liblz4-dev zlib1g-dev libsqlite3-dev libpugixml-dev \
        librsync-dev libb2-dev libxxhash-dev
}

# What the provider `local` needs to build its image and run machines.
local_machine_packages() {
    echo qemu-system-x86 qemu-utils mmdebstrap debian-archive-keyring e2fsprogs uidmap
}

# What packaging/release needs on top of a build.
release_packages() { echo help2man; }

# What the tests need on top of that.
test_packages() {
    local clang_runtimes=libclang-rt-dev  # libFuzzer and the sanitizers, which clang only recommends
    [ "$distribution $release" != "ubuntu 22.04" ] || clang_runtimes=  # they come with clang there
    local nvtop=  # in Debian's contrib, which not every machine uses; without it its test is skipped
    ! apt-cache show nvtop >/dev/null 2>&1 || nvtop=nvtop
    local hcloud=  # Hetzner's command line; not in all releases, without it its test is skipped
    ! apt-cache show hcloud-cli >/dev/null 2>&1 || hcloud=hcloud-cli
    local browser=chromium  # Ubuntu's is a snap, which brings no program to containers; without it its test is skipped
    [ "$distribution" = debian ] || browser=
    echo lintian zsh fish $nvtop $hcloud $browser prometheus catch2 clang $clang_runtimes lld clang-tidy clang-format etcd-server etcd-client openssh-server openssh-client nghttp2-server curl iproute2 rsync openssl git procps mtools dosfstools
}

package_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

apt_quiet() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}

# Refreshes the lists only when a package is not known in them or its file is no longer on the mirror.
apt_install() {
    apt_quiet install --no-install-recommends "$@" || { apt_quiet update && apt_quiet install --no-install-recommends "$@"; }
}

install_packages() {
    local missing=() package
    for package in "$@"; do
        package_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] || quietly "install ${#missing[@]} packages" apt_install "${missing[@]}"
}

# --- tools that the distribution may have too old -----------------------------------------------------------------

# A Python environment of our own, for what comes from PyPI; the machine's Python stays as it is.
python_venv() {
    local venv=$build_dir/venv
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >&2 || fail "python3 -m venv failed" "install python3-venv"
    echo "$venv"
}

# install_from_pypi NAME==VERSION...: into that environment.
install_from_pypi() {
    local venv
    venv=$(python_venv)
    "$venv/bin/pip" freeze | grep -Fxc -f <(printf '%s\n' "$@") | grep -qx $# ||
        quietly "install $# packages from PyPI" "$venv/bin/pip" install "$@"
}

# The presets need CMake 3.25; Ubuntu 22.04 has 3.22.
choose_cmake() {
    local have
    have=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p' || true)
    if [ -n "$have" ] && dpkg --compare-versions "$have" ge 3.25; then return; fi
    PATH=$(python_venv)/bin:$PATH
    [ -x "$build_dir/venv/bin/cmake" ] || quietly "install CMake from PyPI" pip install 'cmake>=3.25,<4'
    export PATH
}

# Parts of C++20 that we use came with g++ 12; Ubuntu 22.04 has 11 and offers 12 beside it.
choose_compiler() {
    [ -z "${CXX:-}" ] || return 0
    [ "$(g++ -dumpversion 2>/dev/null | cut -d. -f1)" -lt 12 ] || return 0
    install_packages g++-12
    export CC=gcc-12 CXX=g++-12
}

# Everything between a fresh machine and `cmake --preset`.
# prepare_build LIST...: lists of packages by their functions' names, for some depend on the distribution.
prepare_build() {
    local list packages
    detect_distribution
    packages=$(for list in build_packages "$@"; do $list; done)  # by itself: as an argument its failure would pass by
    install_packages $packages
    choose_cmake
    choose_compiler
    build_third_party
}

# All at once what CMake would have built one after the other when it configures: half of each is a script on one core. What
# fails here says why, and fails again there.
build_third_party() {
    local library builders=()
    for library in "libzmq plain" libcurl libssh2; do
        "$repo"/packaging/third_party/$library >/dev/null &
        builders+=($!)
    done
    for library in "${builders[@]}"; do wait "$library" || true; done
}
