# What relink prints, in the words of a package: attributes in the place of options, and nothing of where the build has its files.
/^with /d
/ is the relinked copy; /d
/^Next:/,$d
s|/[^ :,;]*/\.relink\.[A-Za-z0-9]{6}/||g
s/Install the package that has the library, or name a prefix that has it \(--prefix\)\./Add the package that has it to buildInputs./
s/pass --allow-missing [A-Z]+/name it in relinkAllowMissing/
s/--allow-missing/relinkAllowMissing/g
s/--assume-symbols/relinkAssumeSymbols/g
s/--forward/relinkForward/g
s/--gpu/relinkGpus/g
s/--preload/relinkPreload/g
s/--stub/relinkStub/g
s/--substitute/relinkSubstitute/g
s/(the|a) prefix \(--prefix\)|--prefix( DIR)?/buildInputs/g
s/\b(no|the) prefix has/\1 package of buildInputs has/g
s/--(allow-isa-gap|interpreter|force|ignore)/relinkFlags = [ "--\1" ]/g
