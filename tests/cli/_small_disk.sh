# Begins the test again in a mount namespace of its own, where it may mount small disks (tmpfs);
# skips it where that is not possible. Source it first.
if [ "${IN_NAMESPACE:-}" != yes ]; then
    enter=(unshare --mount)
    [ "$(id -u)" -eq 0 ] || enter=(unshare --map-root-user --mount)
    if ! "${enter[@]}" sh -c 'd=$(mktemp -d) && mount -t tmpfs -o size=64k none "$d" &&
        mount -o remount,size=128k "$d" && umount "$d" && rmdir "$d"' 2>/dev/null; then
        echo "skipped: a small tmpfs cannot be mounted here"
        exit 77
    fi
    export IN_NAMESPACE=yes
    exec "${enter[@]}" bash "$0"
fi
