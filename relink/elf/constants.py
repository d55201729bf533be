"""Numbers of the ELF format. Names and values are those of the gABI and of glibc's elf/elf.h."""

from __future__ import annotations

from typing import Final

# Object file types, e_type.
ET_REL: Final = 1
ET_EXEC: Final = 2
ET_DYN: Final = 3

EM_X86_64: Final = 62
EM_AMDGPU: Final = 224

# Program header types, p_type.
PT_NULL: Final = 0
PT_LOAD: Final = 1
PT_DYNAMIC: Final = 2
PT_INTERP: Final = 3
PT_NOTE: Final = 4
PT_PHDR: Final = 6
PT_TLS: Final = 7
PT_GNU_EH_FRAME: Final = 0x6474E550
PT_GNU_STACK: Final = 0x6474E551
PT_GNU_PROPERTY: Final = 0x6474E553

SHT_NOBITS: Final = 8

# Values of st_shndx that are not the number of a section.
SHN_ABS: Final = 0xFFF1

# Tags of the dynamic array.
DT_NEEDED: Final = 1
DT_PLTRELSZ: Final = 2
DT_HASH: Final = 4
DT_STRTAB: Final = 5
DT_SYMTAB: Final = 6
DT_RELA: Final = 7
DT_RELASZ: Final = 8
DT_STRSZ: Final = 10
DT_SYMENT: Final = 11
DT_SONAME: Final = 14
DT_RPATH: Final = 15
DT_SYMBOLIC: Final = 16
DT_REL: Final = 17
DT_RELSZ: Final = 18
DT_PLTREL: Final = 20
DT_DEBUG: Final = 21
DT_TEXTREL: Final = 22
DT_JMPREL: Final = 23
DT_RUNPATH: Final = 29
DT_FLAGS: Final = 30
DT_RELRSZ: Final = 35
DT_RELR: Final = 36
DT_GNU_HASH: Final = 0x6FFFFEF5
DT_VERSYM: Final = 0x6FFFFFF0
DT_RELACOUNT: Final = 0x6FFFFFF9
DT_FLAGS_1: Final = 0x6FFFFFFB
DT_VERDEF: Final = 0x6FFFFFFC
DT_VERDEFNUM: Final = 0x6FFFFFFD
DT_VERNEED: Final = 0x6FFFFFFE
DT_VERNEEDNUM: Final = 0x6FFFFFFF
DT_AUXILIARY: Final = 0x7FFFFFFD
DT_FILTER: Final = 0x7FFFFFFF

DF_SYMBOLIC: Final = 2
DF_TEXTREL: Final = 4

DF_1_NOOPEN: Final = 64
DF_1_NODEFLIB: Final = 0x800
DF_1_PIE: Final = 0x8000000
