package metallab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/vmimage"
)

// Install installs packages as an administrator does, brings the micro image, starts the agent and runs a first job.
func (h *Host) Install(ctx context.Context, debs ...string) error {
	if _, err := h.Run(ctx, "mkdir -p /root/packages && rm -f /root/packages/*"); err != nil {
		return err
	}
	if err := h.Copy(ctx, "/root/packages", debs...); err != nil {
		return err
	}
	names := make([]string, len(debs))
	for i, deb := range debs {
		names[i] = "./" + filepath.Base(deb)
	}
	install := "cd /root/packages && DEBIAN_FRONTEND=noninteractive apt-get -q -y install " + strings.Join(names, " ")
	if _, err := h.Run(ctx, install); err != nil {
		return err
	}
	if err := h.bringImage(ctx, debs); err != nil {
		return err
	}
	_, err := h.Run(ctx, `set -e
systemctl enable --now grange-agent
# On a busy machine the probe of KVM takes longer than the agent waits for it, and the first VM would be emulated in an emulated host.
for n in $(seq 120); do
	grange host show --json | grep -q '"accelerator": "kvm"' && break
	sleep 1
done
grange exec -- true`)
	return err
}

// bringImage builds the micro image here, with the packages' grange-guest, and brings it to the host, which would take
// minutes for what takes four seconds here.
func (h *Host) bringImage(ctx context.Context, debs []string) error {
	i := slices.IndexFunc(debs, func(deb string) bool { return strings.HasPrefix(filepath.Base(deb), "grange_") })
	if i < 0 {
		return nil
	}
	tree := h.path("package")
	defer os.RemoveAll(tree)
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", debs[i], tree).CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb: %w: %s", err, out)
	}
	store, err := vmimage.Open(h.lab.path("images"))
	if err != nil {
		return err
	}
	defer store.Close()
	guest := filepath.Join(tree, "usr/bin/grange-guest")
	image, err := store.BuildMicro(ctx, vmimage.BuildOptions{GuestBinary: guest, Progress: func(string) {}})
	if err != nil {
		return err
	}
	inUse := func(digest string) bool { return digest == image.Digest }
	if _, err := store.Purge(vmimage.PurgeOptions{InUse: inUse}); err != nil {
		return err
	}
	files := exec.CommandContext(ctx, "tar", "-C", h.lab.path("images"), "-cf", "-", "blobs", "images")
	out, err := files.StdoutPipe()
	if err != nil {
		return err
	}
	if err := files.Start(); err != nil {
		return err
	}
	err = h.Command(ctx, "mkdir -p /var/lib/grange/images && tar -C /var/lib/grange/images -xf -", out, nil)
	// tar ends even where the host no longer reads.
	return errors.Join(err, out.Close(), files.Wait())
}
