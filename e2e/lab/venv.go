package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Venv makes a Python environment of Debian's Python with packages that are pinned by hash, unless it is there.
func Venv(ctx context.Context, dir string, requirements []byte) error {
	mark := filepath.Join(dir, fmt.Sprintf("%x.txt", sha256.Sum256(requirements)))
	if _, err := os.Stat(mark); err == nil {
		return nil
	}
	list := filepath.Join(dir, "requirements.txt")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(list, requirements, 0o644)); err != nil {
		return err
	}
	for _, line := range [][]string{{"/usr/bin/python3", "-m", "venv", dir},
		{filepath.Join(dir, "bin", "pip"), "install", "-q", "--require-hashes", "--only-binary=:all:", "-r", list}} {
		if out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, out)
		}
	}
	return os.WriteFile(mark, nil, 0o644)
}
