package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

// CodeHostsFailed is of an order that some hosts did not carry out; see docs/errors.md.
const CodeHostsFailed farm.Code = "hosts-failed"

// either runs a command on the catalogue of the fleet, or on the images of this host.
func (a imageCommands) either(here func(cmd *cobra.Command, args []string) error,
	fleet func(context.Context, *fleet.Client, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if a.Here(cmd) {
			return here(cmd, args)
		}
		return a.OnServer(fleet)(cmd, args)
	}
}

// fleetImages lists the catalogue, and what hosts have of their own.
func (a imageCommands) fleetImages(ctx context.Context, c *fleet.Client, _ []string) error {
	images, err := c.Images.List(ctx)
	if err != nil {
		return err
	}
	return app.Table[fleet.Image]{None: "no image in the catalogue, and no host has an image",
		Head: "IMAGE\tKIND\tSIZE\tOS\tDIGEST\tHOSTS\tSTATE", Line: func(i fleet.Image) []any {
			if !i.Catalogue {
				return []any{output.Visible(i.Name), "-", "-", "-", "-", i.Hosts, "of hosts alone"}
			}
			return []any{output.Visible(i.Name), i.Kind, mebibytes(i.Size), app.Dash(i.OS),
				i.Digest[:min(len(i.Digest), shortDigest)], i.Hosts,
				output.Visible(stateText(i.State, i.Reason, i.Successor))}
		}}.Print(a.App, images)
}

// shortDigest is as much of a digest as tells images apart for people.
const shortDigest = len("sha256:") + 12

func stateText(state, reason, successor string) string {
	if reason != "" {
		state += ": " + reason
	}
	if successor != "" {
		state += "; use " + successor
	}
	return state
}

// printFleetImage prints an image of the catalogue.
func (a imageCommands) printFleetImage(i fleet.ImageDetails) error {
	if a.JSON {
		return a.PrintJSON(i)
	}
	t := output.NewColumns(a.Out)
	line := func(key, value string) {
		if value != "" && value != "0" {
			fmt.Fprintf(t, "%s\t%s\n", key, output.Visible(value))
		}
	}
	line("name", strings.Join(i.Names, " "))
	line("digest", i.Digest)
	line("kind", strings.TrimSpace(i.Kind+" "+i.Format))
	line("size", mebibytes(i.Size))
	line("os", i.OS)
	line("minimum", minimumText(i))
	for _, key := range slices.Sorted(maps.Keys(i.Properties)) {
		line("property", key+"="+i.Properties[key])
	}
	line("projects", strings.Join(i.Projects, " "))
	line("note", i.Note)
	line("source", i.Source)
	line("verified by", i.Verdict)
	if i.Created != nil {
		line("added", i.Created.Format(time.DateTime)+" by "+i.By)
	}
	line("state", stateText(i.State, i.Reason, i.Successor))
	line("hosts", strings.TrimSpace(fmt.Sprintf("%d  %s", i.Hosts, strings.Join(i.Holders, " "))))
	line("vms", strings.Join(i.VMs, " "))
	line("jobs", fmt.Sprint(i.Jobs))
	for n := len(i.Versions) - 1; n >= 0; n-- {
		v := i.Versions[n]
		text := v.Since.Format(time.DateTime) + "  " + v.Digest + "  " + v.By
		if !v.Stored {
			text += "  removed"
		}
		fmt.Fprintf(t, "%s\t%s\n", map[bool]string{true: "versions"}[n == len(i.Versions)-1], output.Visible(text))
	}
	return t.Flush()
}

func minimumText(i fleet.ImageDetails) string {
	var parts []string
	if i.MinMemory > 0 {
		parts = append(parts, farm.Bytes(i.MinMemory).String()+" of memory")
	}
	if i.MinDisk > 0 {
		parts = append(parts, farm.Bytes(i.MinDisk).String()+" of disk")
	}
	return strings.Join(parts, ", ")
}

// catalogueFlags are what is said of an image of the catalogue alone.
type catalogueFlags struct {
	os, note, disk, memory string
	properties             map[string]string
	projects               []string
}

func (f *catalogueFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.os, "os", "", "operating `SYSTEM` of the image, for people (catalogue)")
	flags.StringVar(&f.note, "note", "", "`TEXT` on the image, for people (catalogue)")
	flags.StringVar(&f.disk, "min-disk", "", "least `SIZE` of root and scratch disk of a VM (catalogue)")
	flags.StringVar(&f.memory, "min-memory", "", "least `SIZE` of memory of a VM (catalogue)")
	flags.StringToStringVar(&f.properties, "property", nil,
		"`NAME=VALUE`, as hw_cpu_sockets=1, in OpenStack's words (catalogue, repeatable)")
	flags.StringSliceVar(&f.projects, "project", nil,
		"`PROJECT` whose VMs may be made of the image (catalogue, repeatable; default: all)")
}

// none refuses them for an image of one host.
func (f *catalogueFlags) none() error {
	if f.os+f.note+f.disk+f.memory != "" || len(f.properties)+len(f.projects) > 0 {
		return app.Usage("name the server: --server, $GRANGE_SERVER or client.toml",
			"these flags are for the catalogue of the fleet")
	}
	return nil
}

func (f *catalogueFlags) into(r *fleet.ImageRequest) error {
	r.OS, r.Note, r.Properties, r.Projects = f.os, f.note, f.properties, f.projects
	for text, to := range map[*string]*uint64{&f.disk: &r.MinDisk, &f.memory: &r.MinMemory} {
		if *text == "" {
			continue
		}
		size, err := farm.ParseBytes(*text)
		if err != nil {
			return err
		}
		*to = uint64(size)
	}
	return nil
}

// addFleetImage adds an image to the catalogue: a URL is fetched by the server, a path is uploaded.
func (a imageCommands) addFleetImage(ctx context.Context, c *fleet.Client, r fleet.ImageRequest) error {
	say := func(text string) { fmt.Fprintln(a.Err, output.Visible(text)) }
	if !strings.Contains(r.Source, ":") {
		if r.Sum+r.Sums != "" {
			return app.Usage("leave them out: an upload is compared with the file by itself",
				"checksums are for what the server fetches")
		}
		var err error
		if r.Files, err = a.upload(ctx, c.Images, r.Source, say); err != nil {
			return err
		}
		r.Source = ""
	}
	image, err := c.Images.Add(ctx, r, say)
	if err != nil {
		return err
	}
	return a.printFleetImage(image)
}

// upload brings a disk, or the files of a directory with a kernel, to the server.
func (a imageCommands) upload(ctx context.Context, c fleet.ImageClient, path string,
	say func(string)) (files []fleet.UploadedFile, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, app.Usage("name a file, a directory with a kernel and an initrd, or a URL", "no image: %v", err)
	}
	parts := map[string]string{"disk": path}
	if info.IsDir() {
		if parts, err = kernelParts(path); err != nil {
			return nil, err
		}
	}
	for name, path := range parts {
		sum, err := a.uploadFile(ctx, c, path, say)
		if err != nil {
			return nil, err
		}
		files = append(files, fleet.UploadedFile{Name: name, SHA256: sum})
	}
	return files, nil
}

// kernelParts are the files of a kernel's directory, by their names.
func kernelParts(dir string) (map[string]string, error) {
	parts := map[string]string{}
	for _, name := range []string{"vmlinux", "vmlinuz", "initrd", "cmdline"} {
		_, err := os.Stat(filepath.Join(dir, name))
		if err == nil {
			parts[name] = filepath.Join(dir, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if len(parts) == 0 {
		return nil, app.Usage("name the kernel vmlinuz, and its initramfs initrd", "no kernel in %s", dir)
	}
	return parts, nil
}

func (a imageCommands) uploadFile(ctx context.Context, c fleet.ImageClient, path string,
	say func(string)) (sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return "", app.Usage("name a disk image", "%s is empty or no file", path)
	}
	say("reading " + path)
	if sum, err = vmimage.SumOf(ctx, io.NewSectionReader(f, 0, info.Size())); err != nil {
		return "", err
	}
	said := -1
	return sum, c.Upload(ctx, f, sum, info.Size(), func(done int64) {
		if tenth := int(10 * done / info.Size()); tenth != said {
			said = tenth
			say(fmt.Sprintf("uploaded %d %% of %v", 10*tenth, farm.Bytes(info.Size())))
		}
	})
}

// rolloutFlags say which hosts do something, and whether the command waits for them.
type rolloutFlags struct {
	cell    string
	hosts   []string
	labels  map[string]string
	atOnce  int
	timeout time.Duration
	noWait  bool
	yes     bool
}

func (f *rolloutFlags) register(a *app.App, cmd *cobra.Command, atOnce int) {
	flags := cmd.Flags()
	flags.StringVar(&f.cell, "cell", "", "only hosts of this `CELL`")
	flags.StringSliceVar(&f.hosts, "host", nil, "only `HOST`, by name, pattern or ID (repeatable)")
	flags.StringToStringVar(&f.labels, "label", nil, "only hosts with this label, `NAME=VALUE` (repeatable)")
	flags.IntVar(&f.atOnce, "at-once", 0,
		fmt.Sprintf("`NUMBER` of hosts that are at it at a time (default %d)", atOnce))
	flags.BoolVar(&f.noWait, "no-wait", false, "return at once, and let the hosts go on")
	flags.DurationVar(&f.timeout, "timeout", time.Hour, "maximum `TIME` to wait; the hosts go on afterwards")
	app.Complete(cmd, "host", func() []string {
		names, _ := a.CompleteHosts(cmd, nil, "")
		return names
	})
}

func (a imageCommands) imagePrestage() *cobra.Command {
	var f rolloutFlags
	cmd := &cobra.Command{Use: "prestage IMAGE", Short: "Have hosts of the fleet fetch an image before it is needed",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeImages,
		Long: `Have hosts of the fleet fetch an image of the catalogue before a VM needs it: all hosts, or
those of a cell, by name or by label. Some fetch at a time. The command prints progress until
all have ended; hosts that are silent fetch when they are back, within a day.`,
		Example: "  grange image prestage debian-12 --cell main\n  grange image prestage debian-12 --label rack=b3 --no-wait",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.rollOut(ctx, c, f, func(r fleet.ImageRollout) (fleet.Rollout, error) {
				r.Image = args[0]
				return c.Images.Prestage(ctx, r)
			})
		})}
	f.register(a.App, cmd, 20)
	return cmd
}

func (a imageCommands) imageInvalidate() *cobra.Command {
	var f rolloutFlags
	cmd := &cobra.Command{Use: "invalidate IMAGE|PATTERN", Short: "Have hosts of the fleet remove their copies of images",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeImages,
		Long: `Have hosts of the fleet remove their copies of images: of all versions that the names which
the pattern matches have had, or of one digest. A few hosts do it at a time. Copies that a VM
uses stay, and the host is listed as failed. Hosts fetch an image again when they need it.`,
		Example: "  grange image invalidate 'debian-*' --cell main\n  grange image invalidate sha256:776e29643",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.rollOut(ctx, c, f, func(r fleet.ImageRollout) (fleet.Rollout, error) {
				r.Image = args[0]
				return c.Images.Invalidate(ctx, r)
			})
		})}
	f.register(a.App, cmd, 5)
	return cmd
}

// rollOut begins something on hosts, and waits for them.
func (a imageCommands) rollOut(ctx context.Context, c *fleet.Client, f rolloutFlags,
	begin func(fleet.ImageRollout) (fleet.Rollout, error)) error {
	r, err := begin(fleet.ImageRollout{Cell: f.cell, Hosts: f.hosts, Labels: f.labels, AtOnce: f.atOnce})
	if err != nil {
		return err
	}
	if !f.noWait {
		if r, err = a.follow(ctx, c, r, f.timeout); err != nil {
			return err
		}
	}
	if err := a.printRollout(r); err != nil || r.Failed == 0 {
		return err
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeHostsFailed,
		Message: fmt.Sprintf("%s of %d failed", farm.Count(r.Failed, "host"), len(r.Hosts)),
		Hint:    "see the reasons; repeat the command for them: --host"}
}

// follow looks until all hosts have ended, and tells what has changed.
func (a imageCommands) follow(ctx context.Context, c *fleet.Client, r fleet.Rollout,
	timeout time.Duration) (fleet.Rollout, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for said := ""; ; {
		if now := rolloutText(r); now != said {
			said = now
			fmt.Fprintln(a.Err, now)
		}
		if r.Ended != nil {
			return r, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return r, &farm.Error{Kind: farm.Unavailable, Code: CodeHostsFailed,
				Message: "not all hosts have ended: " + rolloutText(r), Err: context.Cause(ctx),
				Hint: "they go on; `grange image show` lists the hosts that have an image"}
		}
		now, err := c.Images.Rollout(ctx, r.ID)
		if err == nil {
			r = now
		} else if ctx.Err() == nil {
			return r, err
		}
	}
}

func rolloutText(r fleet.Rollout) string {
	text := fmt.Sprintf("%d of %d hosts done", r.Done, len(r.Hosts))
	var done, total uint64
	for _, h := range r.Hosts {
		if h.State == string(farm.TaskActive) {
			done, total = done+h.Done, total+h.Total
		}
	}
	if r.Active > 0 {
		text += fmt.Sprintf(", %d at it", r.Active)
	}
	if total > 0 {
		text += fmt.Sprintf(" (%d %% of %v)", 100*done/total, farm.Bytes(total))
	}
	if r.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", r.Waiting)
	}
	if r.Failed > 0 {
		text += fmt.Sprintf(", %d failed", r.Failed)
	}
	return text
}

func (a imageCommands) printRollout(r fleet.Rollout) error {
	if a.JSON {
		return a.PrintJSON(r)
	}
	t := output.NewColumns(a.Out)
	fmt.Fprintln(t, "HOST\tSTATE\tREASON")
	for _, h := range r.Hosts {
		t.Row(output.Visible(h.Host), h.State, output.Visible(app.Dash(h.Reason)))
	}
	return t.Flush()
}

func (a imageCommands) imageHosts() *cobra.Command {
	return &cobra.Command{Use: "hosts IMAGE", Short: "List the hosts of the fleet that have an image",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeImages,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			i, err := c.Images.Get(ctx, args[0])
			if err != nil {
				return err
			}
			return app.Table[string]{None: "no host has the image", Head: "HOST",
				Line: func(h string) []any { return []any{output.Visible(h)} }}.Print(a.App, i.Holders)
		})}
}

// completeImages offers the names of the catalogue, or those of this host's images.
func (a imageCommands) completeImages(cmd *cobra.Command, args []string,
	typed string) ([]string, cobra.ShellCompDirective) {
	if a.Here(cmd) {
		return a.CompleteImages(cmd, args, typed)
	}
	return a.CompleteNames(cmd, args, typed, func(ctx context.Context, c *fleet.Client) ([]string, error) {
		images, err := c.Images.List(ctx)
		return app.NamesOf(images, func(i fleet.Image) string { return i.Name }), err
	})
}
