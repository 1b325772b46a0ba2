package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Commit is the whole name of a commit that this clone has.
func Commit(ctx context.Context, name string) (string, error) {
	if _, err := Git(ctx, "rev-parse", "--git-dir"); err != nil {
		return "", fmt.Errorf("%s is not a clone of the repository, so no other commit can be built: %w\n"+
			"  try: git clone, and run this there", Source(), err)
	}
	out, err := Git(ctx, "rev-parse", "--verify", "--quiet", name+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("this clone has no commit %s\n"+
			"  try: git fetch --unshallow, where the clone is shallow; or name another commit", name)
	}
	return strings.TrimSpace(out), nil
}

// Git runs git in the tree that this program was built from.
func Git(ctx context.Context, args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", Source()}, args...)...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return string(out), nil
}

// TakeOut writes a commit's files into a new directory, and leaves no trace of that in the repository.
func TakeOut(ctx context.Context, commit, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	archive := to + ".tar"
	if _, err := Git(ctx, "archive", "--output", archive, commit); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xf", archive, "-C", to).CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, out)
	}
	return os.Remove(archive)
}
