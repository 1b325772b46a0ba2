package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// fileWalk is what programs do to files, with the output that says so.
const fileWalk = `set -e
umask 022
mkdir -p a/b; chmod 1777 a; stat -c %a a
echo one > a/b/f; ln a/b/f hard; ln -s a/b/f soft; echo two >> soft
cat hard; readlink soft; stat -c %h a/b/f
exec 3< a/b/f 4>> a/b/f
mv a c; rm hard c/b/f soft; echo three >&4; cat <&3; exec 3<&- 4>&-
cd c/b; mv ../../c ../../d; echo here > g; cat ../b/g; cd ../..
truncate -s 5 d/b/g; touch -d @1000000000 d/b/g; chmod 4711 d/b/g; stat -c '%s %Y %a' d/b/g
ln -s nowhere dangling; touch -h -d @1000000001 dangling; stat -c %Y dangling
cp $(command -v bash) program; chmod +x program; ./program -c 'echo mapped'
mkfifo pipe; cat pipe & echo through > pipe; wait
echo new > new; mv new d/b/g; cat d/b/g
rmdir d 2> /dev/null || echo 'not empty'
rm -r d dangling pipe program; ls -A | wc -l
`

// bindFiles does to a bound directory what programs do to directories, and to one of the host for comparison.
func bindFiles(t *testing.T, vm *oneVM) {
	want := func() string {
		cmd := exec.Command("sh", "-c", fileWalk)
		cmd.Dir = t.TempDir()
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}()
	dir := t.TempDir()
	cmd := vm.exec(t, "--bind", dir+":/data:suid", "--workdir", "/data", "--", "sh", "-c", fileWalk)
	run(t, cmd, "").want(t, 0, want)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in %s: %v, %v", filepath.Base(dir), left, err)
	}
}
