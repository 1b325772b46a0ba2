package farm

// Errors of images, disks and seeds.
const (
	CodeBadImageName Code = "bad-image-name"
	CodeNoImage      Code = "no-such-image"
	CodeManyImages   Code = "ambiguous-image" // a digest prefix that fits several images
	CodeImageInUse   Code = "image-in-use"
	CodeBadImage     Code = "bad-image" // a file that is not an image grange can run safely
	CodeImageStore   Code = "image-store"
	CodeImageBuild   Code = "image-build"
	CodeDiskFull     Code = "disk-full"
	CodeDiskTool     Code = "disk-tool" // qemu-img or mke2fs is missing or complains
	CodeBadSeed      Code = "bad-seed"
)
