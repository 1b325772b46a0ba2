package host

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
)

const hostRecordLong = `Write a tar archive with everything that the commands with --from read of this host:
topology, settings, VMs as libvirt describes them, and the placement of their threads and
memory. The command changes nothing and needs no agent. As root, it can read more.

The archive contains only the files that these commands read. It does not contain passwords,
keys, command lines of other programs, commands of jobs, or the contents of disks beyond the
first 104 bytes of qcow2 images. --anonymous replaces MAC addresses and the names of the
host, VMs and disks. Inspect the archive with tar before you pass it on.`

func (a hostCommands) hostRecordCommand() *cobra.Command {
	var from, file string
	var anonymous bool
	cmd := &cobra.Command{
		Use:   "record [-o FILE]",
		Short: "Record a host in an archive, for --from of other commands", Long: hostRecordLong,
		Args: cobra.NoArgs,
		Example: "  grange host record -o host.tar.gz\n  ssh node17 grange host record >node17.tar\n" +
			"  grange host record --from old-recording.txtar --anonymous -o report.tar",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" && term.IsTerminal(int(os.Stdout.Fd())) {
				return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
					Message: "an archive is not for a terminal", Hint: "name a file: grange host record -o host.tar.gz"}
			}
			return a.recordHost(cmd.Context(), from, file, anonymous)
		},
	}
	app.FromFlag(cmd, &from)
	cmd.Flags().StringVarP(&file, "output", "o", "",
		"`FILE` to write, compressed if its name ends in .gz; - is standard output, which is the default")
	cmd.Flags().BoolVar(&anonymous, "anonymous", false,
		"replace MAC addresses and the names of the host, VMs and disks")
	return cmd
}

func (a hostCommands) recordHost(ctx context.Context, from, file string, anonymous bool) error {
	for _, ending := range []string{".bz2", ".zst", ".xz", ".zip", ".txtar"} {
		if strings.HasSuffix(file, ending) {
			return app.Usage("let it end in .tar or .tar.gz", "recordings are not made as %s", ending)
		}
	}
	tree, err := app.HostTree(ctx, from)
	if err != nil {
		return err
	}
	defer tree.Close()
	var done hostfacts.Recording
	write := func(w io.Writer) (err error) {
		done, err = hostfacts.Record(tree, tree.Live, anonymous, w, time.Now())
		return err
	}
	name := file
	if file == "" || file == "-" {
		name, err = "standard output", write(output.RawOf(a.Out))
	} else {
		zip := strings.HasSuffix(file, ".gz") || strings.HasSuffix(file, ".tgz")
		err = app.WriteFile(file, func(w io.Writer) error { return compressed(w, zip, write) })
	}
	if err != nil {
		return err
	}
	for _, path := range done.Unread {
		fmt.Fprintf(a.Err, "left out: %s\n", farm.Printable(path))
	}
	fmt.Fprintf(a.Err, "%s: %d files, %d kB in them\n", farm.Printable(name), done.Files, (done.Bytes+999)/1000)
	return nil
}

func compressed(to io.Writer, zip bool, write func(io.Writer) error) error {
	if !zip {
		return write(to)
	}
	w := gzip.NewWriter(to)
	if err := write(w); err != nil {
		return err
	}
	return w.Close()
}
