# What the builders of libraries here share: sources of the distribution's packages, and results that are kept. Sourced, never
# run. Of each library one builder works at a time, for two presets may be configured at once; and one of all fetches.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

cc=${CC:-cc}
cxx=${CXX:-c++}
downloads=$third_party/downloads
mkdir -p "$downloads"
exec 9>"$third_party/.$(basename "$0").lock"
flock 9

# A second apt configuration beside the machine's: same mirrors and keys, source packages instead of binary ones. One for each
# release of the distribution that is asked; $apt is its folder.
private_apt() {
    apt-get -q -y -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts="$apt/sources.list.d" \
        -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root "$@"
}

# Anew for each package: whoever was told to take another mirror has done so meanwhile. Each file stays where it is for
# apt, which reads sources.list first and refuses some lists in another order. TNR_APT names a test's lists.
write_source_lists() {
    local machine=${TNR_APT:-/etc/apt} wanted=$1 codename file copy
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    rm -rf "$apt"/sources.list*
    mkdir -p "$apt/sources.list.d" "$apt/lists/partial" "$apt/cache/archives/partial"
    touch "$apt/sources.list"
    for file in "$machine"/sources.list "$machine"/sources.list.d/*; do
        [ -f "$file" ] && grep -q "$codename" "$file" || continue
        copy=$apt${file#"$machine"}
        case $file in
            *.list) sed -n 's/^ *deb /deb-src /p' "$file" >"$copy" ;;
            *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$copy" ;;
            *) continue ;;
        esac
        [ -z "$wanted" ] || sed -i "s/\b$codename\b/$wanted/g" "$copy"
    done
}

# fetch_source PACKAGE [CODENAME]: the unpacked, patched source, at $downloads/PACKAGE, unless somebody has put it there; from
# another release of the distribution if its name is given.
fetch_source() {
    local apt=$third_party/apt${2:+-$2} fetching
    exec {fetching}>"$third_party/.fetch.lock"
    flock "$fetching"
    [ -d "$downloads/$1" ] || fetch_with_apt "$@"
    exec {fetching}>&-
}

fetch_with_apt() {
    write_source_lists "${2:-}"
    # Other vendors' lists may have no source packages; what counts is whether ours is found.
    (cd "$downloads" && { private_apt update || true; } && private_apt source --download-only --only-source "$1" &&
        rm -rf "$1.part" && dpkg-source -x "$1"_*.dsc "$1.part" && mv "$1.part" "$1") ||
        fail "the mirror does not give the source package $1 (above: why)" \
            "try again later or with another mirror; sources unpacked by hand are taken from $downloads/$1"
}

# keep FOLDER KEY TEXT COMMAND: COMMAND makes FOLDER ($prefix), unless it was made with this key before.
keep() {
    prefix=$1
    [ "$(cat "$prefix/key" 2>/dev/null)" != "$2" ] || return 0
    rm -rf "$prefix" && mkdir -p "$prefix"
    quietly "$3" "$4"
    echo "$2" >"$prefix/key"
}
