package job

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

func (a imageCommands) imageAdd() *cobra.Command {
	r, keyring, more := api.ImageRequest{}, "", catalogueFlags{}
	cmd := &cobra.Command{
		Use: "add NAME SOURCE", Short: "Download an image, verify it, and add it under a name",
		Args: cobra.ExactArgs(2),
		Long: `Add an image from a web server (https://, http://), a simplestreams tree
(simplestreams+https://HOST/DIRECTORY/#PRODUCT) or a path. The disk may be qcow2, raw, vmdk,
vhdx, vdi or vpc, and packed by gzip, xz or zstd; it becomes a qcow2 or raw disk. The catalogue
of the fleet also takes oci:// references, which its server fetches as it does URLs; a path is
uploaded: a disk, or a directory with a kernel and an initrd.

An interrupted download continues when the command is repeated. --sha sets the expected
checksum; --sums names the published list of checksums, --signature its OpenPGP signature, and
--keyring the keys that may sign. Without --signature the list must be clear-signed if there is
a keyring.`,
		Example: `  grange image add debian-12 https://cloud.example.org/debian-12.qcow2 \
      --sums https://cloud.example.org/SHA512SUMS
  grange image add alma-9 /cvmfs/images.example.org/alma-9.qcow2`,
		RunE: func(cmd *cobra.Command, args []string) error {
			request := r
			request.Name, request.Source = args[0], args[1]
			here := a.Here(cmd)
			for _, ref := range []*string{&request.Source, &request.Sums, &request.Signature} {
				if err := absolute(ref); err != nil {
					return err
				}
			}
			if request.Sums == "" && (request.Signature != "" || keyring != "") {
				return app.Usage("name the list of checksums: --sums", "a signature of nothing")
			}
			if request.Signature != "" && keyring == "" {
				return app.Usage("name the keys that may sign: --keyring FILE", "a signature cannot be verified without keys")
			}
			if keyring != "" {
				var err error
				if request.Keyring, err = os.ReadFile(keyring); err != nil {
					return app.Usage("export the keys: gpg --export KEY >FILE", "the keyring cannot be read: %v", err)
				}
			}
			if here {
				if err := more.none(); err != nil {
					return err
				}
				return a.makeImage(cmd, request)
			}
			return a.addToCatalogue(cmd, request, more)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.Sum, "sha", "", "`HEX` digits of the expected SHA-256 or SHA-512")
	flags.StringVar(&r.Sums, "sums", "", "`SOURCE` of a list of checksums, as SHA256SUMS")
	flags.StringVar(&r.Signature, "signature", "", "`SOURCE` of the detached OpenPGP signature of the list")
	flags.StringVar(&keyring, "keyring", "", "`FILE` with the OpenPGP keys that may sign the list")
	flags.BoolVar(&r.Site, "site", false, siteUsage)
	more.register(cmd)
	return app.LocalFlag(cmd)
}

// addToCatalogue is the request for the server's catalogue.
func (a imageCommands) addToCatalogue(cmd *cobra.Command, r api.ImageRequest, more catalogueFlags) error {
	if r.Site {
		return app.Usage("add it on the host: --local", "the site vouches for images of a host alone")
	}
	request := fleet.ImageRequest{Name: r.Name, Source: r.Source, Sum: r.Sum, Sums: r.Sums, Signature: r.Signature,
		Keyring: r.Keyring}
	if err := more.into(&request); err != nil {
		return err
	}
	return a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
		return a.addFleetImage(ctx, c, request)
	})(cmd, nil)
}

// absolute makes a path absolute, as the agent works in another directory; URLs stay.
func absolute(ref *string) (err error) {
	if *ref != "" && !strings.Contains(*ref, ":") {
		*ref, err = filepath.Abs(*ref)
	}
	return err
}

func (a imageCommands) imageShow() *cobra.Command {
	return app.LocalFlag(&cobra.Command{Use: "show IMAGE",
		Short: "Show an image, the versions of its name, who has it and the VMs that use it",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeImages,
		RunE: a.either(func(cmd *cobra.Command, args []string) error {
			return a.print(a.Client().Image(cmd.Context(), args[0]))
		}, func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.printFleet(c.Images.Get(ctx, args[0]))
		})})
}

func (a imageCommands) imageVerify() *cobra.Command {
	return a.oneImage("verify IMAGE", "Compare the files of an image with its digest",
		func(ctx context.Context, ref string) (api.ImageDetails, error) {
			fmt.Fprintf(a.Err, "reading %s\n", ref)
			return a.Client().VerifyImage(ctx, ref)
		})
}

// oneImage is a command about one image, which it prints.
func (a imageCommands) oneImage(use, short string,
	do func(ctx context.Context, ref string) (api.ImageDetails, error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.CompleteImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			i, err := do(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printImage(i)
		}}
}

func (a imageCommands) printImage(i api.ImageDetails) error {
	if a.JSON {
		return a.PrintJSON(i)
	}
	t := output.NewColumns(a.Out)
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", key, output.Visible(value))
		}
	}
	line("name", i.Name)
	line("digest", i.Digest)
	line("kind", i.Kind)
	line("size", mebibytes(i.Size))
	line("created", i.Created.Format(time.DateTime))
	line("description", i.Note)
	line("source", i.Source)
	line("signed by", i.SignedBy)
	line("state", imageState(i.Image))
	line("vms", strings.Join(i.VMs, " "))
	for n := len(i.Versions) - 1; n >= 0; n-- {
		v := i.Versions[n]
		text := v.Since.Format(time.DateTime) + "  " + v.Digest
		if !v.Stored {
			text += "  removed"
		}
		line(map[bool]string{true: "versions"}[n == len(i.Versions)-1], text)
		if n < len(i.Versions)-1 {
			fmt.Fprintf(t, "\t%s\n", text)
		}
	}
	return t.Flush()
}

// imageState is the state of an image in words.
func imageState(i api.Image) string {
	text := i.State
	if text == "" {
		text = "active"
	}
	if i.Pinned {
		text += ", pinned"
	}
	if i.Reason != "" {
		text += ": " + i.Reason
	}
	if i.Successor != "" {
		text += "; use " + i.Successor
	}
	return text
}

func (a imageCommands) imageTag() *cobra.Command {
	return app.LocalFlag(&cobra.Command{Use: "tag IMAGE NAME", Short: "Give an image another name, or a name an earlier version",
		Long: "Give an image another name. A name that another image has moves; `grange image show NAME` lists\n" +
			"the versions that a name has had, and tagging the digest of one moves the name back.",
		Example: "  grange image tag debian-12 default\n  grange image tag sha256:776e29643 default",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completeImages,
		RunE: a.either(func(cmd *cobra.Command, args []string) error {
			return a.print(a.Client().TagImage(cmd.Context(), args[0], args[1]))
		}, func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.printFleet(c.Images.Tag(ctx, args[0], args[1]))
		})})
}

// imageStates are the commands that change the state of an image.
func (a imageCommands) imageStates() []*cobra.Command {
	mark := func(use, short, long string, state string, reasons bool) *cobra.Command {
		var successor, reason string
		cmd := app.LocalFlag(&cobra.Command{Use: use, Short: short, Long: long, Args: cobra.ExactArgs(1),
			ValidArgsFunction: a.completeImages,
			RunE: a.either(func(cmd *cobra.Command, args []string) error {
				return a.markImage(cmd.Context(), args[0],
					api.ImageMark{State: &state, Successor: &successor, Reason: &reason})
			}, func(ctx context.Context, c *fleet.Client, args []string) error {
				return a.printFleet(c.Images.Mark(ctx, args[0],
					fleet.ImageMark{State: &state, Successor: &successor, Reason: &reason}))
			})})
		if reasons {
			cmd.Flags().StringVar(&successor, "successor", "", "`IMAGE` to use instead")
			cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that users of the image are shown")
		}
		return cmd
	}
	pin := func(use, short string, pinned bool) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.CompleteImages,
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.markImage(cmd.Context(), args[0], api.ImageMark{Pinned: &pinned})
			}}
	}
	return []*cobra.Command{
		mark("deprecate IMAGE", "Warn users of an image", "Mark an image as deprecated: VMs still start from it, with a "+
			"warning that names\nits successor.", "deprecated", true),
		mark("withdraw IMAGE", "Start no more VMs from an image", "Mark an image as withdrawn: nothing starts from it any "+
			"more, under any of its names,\nalso if the same content is added again. Running VMs continue, and are listed.",
			"withdrawn", true),
		mark("activate IMAGE", "Undo deprecate or withdraw", "", "active", false),
		pin("pin IMAGE", "Keep an image from being purged", true),
		pin("unpin IMAGE", "Undo pin", false),
	}
}

func (a imageCommands) markImage(ctx context.Context, ref string, m api.ImageMark) error {
	return a.print(a.Client().MarkImage(ctx, ref, m))
}

// print prints an image of this host, printFleet one of the catalogue, unless there is an error.
func (a imageCommands) print(i api.ImageDetails, err error) error {
	if err != nil {
		return err
	}
	return a.printImage(i)
}

func (a imageCommands) printFleet(i fleet.ImageDetails, err error) error {
	if err != nil {
		return err
	}
	return a.printFleetImage(i)
}

type purgeFlags struct {
	unused, free string
	yes, dry     bool
}

func (a imageCommands) imagePurge() *cobra.Command {
	var f purgeFlags
	cmd := &cobra.Command{Use: "purge", Short: "Remove images that nobody needs", Args: cobra.NoArgs,
		Long: `Remove images that have lost their name to a newer version, and with --unused and --free also
named ones. Images that a VM uses, stopped VMs included, and pinned images stay. The command
lists what it would remove and asks for confirmation.`,
		Example: "  grange image purge\n  grange image purge --unused 30d --dry-run\n  grange image purge --free 50G --yes",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.purgeImages(cmd.Context(), f) }}
	flags := cmd.Flags()
	flags.StringVar(&f.unused, "unused", "", "also remove images from which no VM was started for `TIME`, as 30d")
	flags.StringVar(&f.free, "free", "", "remove images, the longest unused first, until `SIZE` is free")
	flags.BoolVar(&f.dry, "dry-run", false, "only list what would be removed")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func (a imageCommands) purgeImages(ctx context.Context, f purgeFlags) error {
	request := api.ImagePurge{DryRun: true}
	if f.unused != "" {
		age, err := app.ParseAge(f.unused)
		if err != nil {
			return err
		}
		request.UnusedSeconds = int64(age / time.Second)
	}
	if f.free != "" {
		free, err := farm.ParseBytes(f.free)
		if err != nil {
			return err
		}
		request.Free = uint64(free)
	}
	list, err := a.Client().PurgeImages(ctx, request)
	if err != nil {
		return err
	}
	if !f.dry && len(list) > 0 {
		if err := a.askForPurge(ctx, list, f.yes); err != nil {
			return err
		}
		request.DryRun = false
		if list, err = a.Client().PurgeImages(ctx, request); err != nil {
			return err
		}
	}
	if a.JSON {
		return a.PrintJSON(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.Err, "nothing to remove")
	}
	for _, p := range list {
		fmt.Fprintln(a.Out, purgedText(p))
	}
	return nil
}

func purgedText(p api.ImagePurged) string {
	return fmt.Sprintf("%.19s  %s  %s  %s", p.Digest, mebibytes(p.Size), output.Visible(strings.Join(p.Names, " ")), p.Reason)
}

func (a imageCommands) askForPurge(ctx context.Context, list []api.ImagePurged, yes bool) error {
	if yes {
		return nil
	}
	for _, p := range list {
		fmt.Fprintln(a.Err, purgedText(p))
	}
	return a.Confirm(ctx, fmt.Sprintf("remove %d images?", len(list)), "nothing was removed",
		"see what is listed, then say --yes")
}
