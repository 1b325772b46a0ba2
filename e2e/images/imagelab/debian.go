package imagelab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// DebianTar makes a tar of Debian's essential packages and others, of the release and the mirror that this machine's
// apt has, by mmdebstrap.
func DebianTar(ctx context.Context, tar string, packages ...string) error {
	script := `sources=$1.list; shift
apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
	awk '$1 == "Debian" {print "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", $2, $3, $4}' |
	sort -u >"$sources"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:?}")
exec mmdebstrap --quiet --variant=essential --dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --include="$(echo "$@" | tr ' ' ,)" "$suite" "${sources%.list}" "$sources"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-euc", script, "sh", tar}, packages...)...)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mmdebstrap: %w: %s", err, out)
	}
	return nil
}
